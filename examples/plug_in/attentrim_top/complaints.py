from attentrim.tasks import KINDS, Columns, Local, Task
from attentrim.tasks.tables import read_csv

COMPLAINTS = Task(
    name="complaints",
    summary="is the message a complaint? (accuracy)",
    kind=KINDS["classification"],
    metrics=("accuracy",),
    labels=("no", "yes"),
    local=Local({"train": ("train.csv",), "validation": ("dev.csv",)}, read_csv, Columns("message", "complaint")),
)
