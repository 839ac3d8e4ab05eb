"""A few rows of every task in the layout in which it is published."""

from __future__ import annotations

from pathlib import Path

NLI = "index\tpromptID\tpairID\tp1\tp2\tp3\tp4\tsentence1\tsentence2"
GLUE = {
    "cola": ("gj04\t1\t\tThe dog {n} sleeps.\nks08\t0\t*\tThe dog {n} sleep.\n", "index\tsentence\n7\tA test {n}.\n"),
    "sst2": ("sentence\tlabel\na fine film {n} \t1\na bad one \t0\n", "index\tsentence\n7\ta test {n}\n"),
    "mrpc": (
        'Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n1\t11\t12\tHe said "{n}\tHe said it .\n0\t13\t14\ta\tb\n',
        "index\t#1 ID\t#2 ID\t#1 String\t#2 String\n7\t1\t2\tone {n}\ttwo\n",
    ),
    "stsb": (
        "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore\n"
        "0\tnews\tf\t2012\t1\tnone\tnone\tA plane {n}.\tAn air plane.\t5.000\n"
        "1\tnews\tf\t2012\t1\tnone\tnone\tA man.\tA cat.\t0.25\n",
        "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\n"
        "7\tnews\tf\t2012\t1\tnone\tnone\tone {n}\ttwo\n",
    ),
    "qqp": (
        "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n"
        "0\t1\t2\tWhy {n}?\tHow come?\t1\n1\t3\t4\tWho?\tWhere?\t0\n",
        "id\tquestion1\tquestion2\n7\tone {n}?\ttwo?\n",
    ),
    "mnli": (
        f"{NLI}\tlabel1\tgold_label\n"
        "0\t1\t1n\tp\tp\tp\tp\tA man {n}.\tNobody.\tneutral\tcontradiction\n"
        "1\t1\t1n\tp\tp\tp\tp\tA man.\tSomebody.\tneutral\tentailment\n"
        "2\t1\t1n\tp\tp\tp\tp\tA man.\tA tall one.\tneutral\tneutral\n",
        f"{NLI}\n7\t1\t1n\tp\tp\tp\tp\tone {{n}}\ttwo\n",
    ),
    "qnli": (
        "index\tquestion\tsentence\tlabel\n0\tWhen {n}?\tIn May.\tentailment\n1\tWho?\tIn May.\tnot_entailment\n",
        "index\tquestion\tsentence\n7\tone {n}?\ttwo\n",
    ),
    "rte": (
        "index\tsentence1\tsentence2\tlabel\n0\tIt rains {n}.\tIt is wet.\tentailment\n1\ta\tb\tnot_entailment\n",
        "index\tsentence1\tsentence2\n7\tone {n}\ttwo\n",
    ),
    "wnli": (
        "index\tsentence1\tsentence2\tlabel\n0\tIt is full {n}.\tThe cup is full.\t1\n1\ta\tb\t0\n",
        "index\tsentence1\tsentence2\n7\tone {n}\ttwo\n",
    ),
}
SWAG = "video-id,fold-ind,startphrase,sent1,sent2,gold-source,ending0,ending1,ending2,ending3"
TEXT = {
    "train.txt": "The dog sleeps.\n\nThe cat sees the dog.\n",
    "validation.txt": "A dog sees it.\n",
    "test.txt": "A cat.\n",
}
TREES = "( (S (NP-SBJ (DT The) (NN dog)) (VP (VBZ sleeps) (NP (-NONE- *T*-1))) (. .)) )\n(S (UH Yes))\n"
OTHER = {
    "conll2003": {
        "eng.train": "-DOCSTART- -X- O O\n\nEU NNP I-NP I-ORG\nrejects VBZ I-VP O\nthe DT I-NP O\n"
        "Bonn NNP I-NP I-LOC\nParis NNP I-NP B-LOC\n# # I-NP O\n\nPeter NNP I-NP I-PER\nBlackburn NNP I-NP I-PER\n",
        "eng.testa": "LONDON NNP I-NP I-LOC\n",
        "eng.testb": "Rome NNP I-NP I-LOC\n",
    },
    "wnut17": {
        "train.conll": "I\tO\nlove\tO\nNew\tB-location\nYork\tI-location\n\n\ufe0f\tO\nAda\tB-person\n\n",
        "dev.conll": "Ada\tB-person\n\n",
        "test.conll": "York\tB-location\n\n",
    },
    "pos": {
        "train.tsv": "Dogs\tNOUN\tNNS\nsleep\tVERB\tVBP\n.\tPUNCT\t.\n\nGo\tVERB\tVB\n",
        "dev.tsv": "Dogs\tNOUN\tNNS\n",
        "test.tsv": "Go\tVERB\tVB\n",
    },
    "swag": {
        "train.csv": f'{SWAG},label\nv,1,s,"A man, tall, sits.",He,gold,eats.,flies.,"says ""no"".",sings.,2\n'
        "v,2,s,A dog.,It,gold,barks.,reads.,drives.,votes.,0\n",
        "val.csv": f"{SWAG},label\nv,1,s,A cat.,It,gold,purrs.,reads.,drives.,votes.,0\n",
        "test.csv": f"{SWAG}\nv,1,s,A cat.,It,gold,purrs.,reads.,drives.,votes.\n",
    },
    "mlm": TEXT,
    "clm": TEXT,
    "imdb": {
        f"{split}/{label}/{number}_{stars}.txt": f"A {label} film, {split} {number}."
        for split in ("train", "test")
        for label, stars in (("neg", 2), ("pos", 9))
        for number in (0, 2, 10)
    },
}
TASK_NAMES = (*GLUE, *OTHER)


def write_copy(task: str, directory: Path, rows: int = 1) -> Path:
    """The files of a task. `rows`: how often the lines of a GLUE file are repeated, numbered."""
    files = OTHER.get(task)
    if files is None:
        labelled, test = GLUE[task]
        names = {"train.tsv": labelled, "dev.tsv": labelled, "test.tsv": test}
        if task == "mnli":
            names = {"train.tsv": labelled}
            for kind in ("matched", "mismatched"):
                names |= {f"dev_{kind}.tsv": labelled, f"test_{kind}.tsv": test}
        files = {name: _repeated(text, rows, task != "cola" or "test" in name) for name, text in names.items()}
    for name, text in files.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_bytes(text.encode())
    return directory


def _repeated(text: str, rows: int, header: bool) -> str:
    lines = text.splitlines(keepends=True)
    first, rest = (lines[0], lines[1:]) if header else ("", lines)
    return first + "".join(line.replace("{n}", str(number)) for number in range(rows) for line in rest)
