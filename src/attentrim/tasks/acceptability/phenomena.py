"""What the sentences are about: a few frames for each phenomenon. How to read a frame is said in frames.py."""

from __future__ import annotations

FRAMES: dict[str, tuple[str, ...]] = {
    # The verb agrees with the head of its own subject, whatever noun stands between or before them.
    "agreement-with-subject": (
        "The <person> [be] {very|rather} {trait}.",
        "The <person1> {near} the {person2} [be] {trait}.",
        "The <person1> who {treat:1} the {person2} [has|have] {chore:1} {chore:2}.",
        "The {person1} that the <person2> {near} the {person3} [has|have] {treat:1} {chore:1} {chore:2}.",
    ),
    # Two joined by "and" are several; one beside another stays one.
    "agreement-in-coordination": (
        "The {person1:0} <near|and> the {person2:0} [be] {trait}.",
        "The {person1:0} <behind|and> the {person2:0} [has|have] {chore:1} {chore:2}.",
    ),
    "agreement-in-question": (
        "[be] the <person> {very|rather} {trait}?",
        "[Does|Do] the <person1> {near} the {person2} {act} {daily}?",
        "[Has|Have] the <person1> who {treat:1} the {person2} {chore:1} {chore:2}?",
    ),
    "determiner-and-noun": (
        "The {person} {get} <this|these> [thing] {then}.",
        "The {person} {get} <this|these> {very|rather} {look} [thing] {then}.",
        "The {person} {get} <that|those> {look} [thing] {then}.",
    ),
    # A reflexive agrees with the subject of its own clause.
    "reflexive": (
        "The <gendered:02> {treat:1} [himself|herself] {then}.",
        "The <gendered:01> {near} the {person} {treat:1} [himself|themselves].",
        "The <gendered:23> who {treat1:1} the {person} {treat2:1} [herself|themselves].",
        "The {gendered1:0123} {say} that the <gendered2:02> {treat:1} [himself|herself].",
    ),
    "tag-question": (
        "The <gendered:02> will {chore:0} {chore:2}, won't [he|she]?",
        "The <gendered1:02> {near} the {gendered2:0123} will {chore:0} {chore:2}, won't [he|she]?",
        "The <gendered:01> {near} the {person} {chore:1} {chore:2}, didn't [he|they]?",
        "The <gendered:23> {near} the {person} {chore:1} {chore:2}, didn't [she|they]?",
    ),
    # "Who" needs a gap; after "that" and "why" there is none.
    "filler-and-gap": (
        "The {person1} {know} [who|that] the {person2} {treat:1} <gap> {then}.",
        "The {person1} {know} [who|that] the {person2} {near} the {person3} {treat:1} <gap> {then}.",
        "[Who|Why] did the {person1} {near} the {person2} {treat:0} <gap> {then}?",
    ),
    # "So" takes up an affirmation, "neither" a denial: that of the main clause.
    "so-and-neither": (
        "The {person1} <can|cannot> {act}, and [so|neither] can the {person2}.",
        "The {person1} who {can|cannot} {act1} <can|cannot> {act2}, and [so|neither] can the {person2}.",
        "The {person1} <will|won't> {chore:0} {chore:2}, and [so|neither] will the {person2}.",
    ),
    # "Ever", "any" and "at all" need a negation, and need it in their own clause.
    "ever-in-clause": (
        "[No|The] {person1:0} has <ever|> {chore1:1} {chore1:2}, but [the|no] {person2:0} has <|ever> "
        "{chore2:1} {chore2:2}.",
    ),
    "any-in-scope": (
        "The {person:0} who [has|hasn't] {rest1} <|at all> {today|this week} [hasn't|has] {rest2} <at all|>.",
        "The {person1:0} who [has|hasn't] {treat1:1} <the|any> {person2:1} [hasn't|has] {treat2:1} <any|the> "
        "{person3:1}.",
    ),
    "correlatives": (
        "The {person1} {treat:1} <both|either> the {person2:0} [and|or] the {person3:0}.",
        "The {person1} {treat:1} <both|either> the {trait} {person2:0} [and|or] the {person3:0}.",
    ),
    "comparison": (
        "The {person1} {near} the {person2} seemed <more|as> {trait} [than|as] {others}.",
        "The {person1} who {treat:1} the {person2} seemed <more|as> {trait} [than|as] {others}.",
    ),
}
