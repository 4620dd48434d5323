"""Makes a small invented WordNet and tagger, crates/generator/tests/data/nsmn/verifier/wordnet, and the features of the
released NSMN over them (nsmn/features.json). It needs the packages of nsmn_features.py.

    python scripts/reference/nsmn_wordnet.py
"""

import json
import random
from pathlib import Path

import numpy as np
from nsmn_features import TAGGER, Reference

OUT = Path(__file__).resolve().parents[2] / "crates" / "generator" / "tests" / "data" / "nsmn"
FILES = {"n": "noun", "v": "verb", "a": "adj", "r": "adv"}

# A key, the lemmas, and pointers: a symbol and the other key, with the two lemmas (from 1) if it joins lemmas.
SYNSETS = [
    ("n.thing", "thing whatsit", "~ n.creature, ~ n.place, ~ n.tool, ~ n.cohort, ~ n.ground"),
    ("n.creature", "creature animal", "@ n.thing, ~ n.walker, ~ n.person"),
    ("n.walker", "walker four-footed_beast", "@ n.creature, ~ n.dog"),
    ("n.dog", "dog hound Canis", "@ n.walker, ~ n.terrier, ~i n.rex"),
    ("n.terrier", "terrier earth_dog creature", "@ n.dog, ~ n.toy"),
    ("n.toy", "toy_terrier lap_dog", "@ n.terrier"),
    ("n.rex", "Rex Old_Rex", "@i n.dog"),
    ("n.person", "person human mortal", "@ n.creature, ~ n.woman, ~ n.man, ~ n.villain"),
    ("n.woman", "woman lady", "@ n.person, ! n.man 1 1"),
    ("n.man", "man gentleman", "@ n.person, ! n.woman 1 1"),
    ("n.villain", "villain dog", "@ n.person, ~ n.pirate"),
    ("n.pirate", "pirate sea_dog", "@ n.villain"),
    ("n.place", "place spot", "@ n.thing, ~ n.city"),
    ("n.city", "city town", "@ n.place, ~i n.avalon"),
    ("n.avalon", "Avalon", "@i n.city"),
    ("n.tool", "tool", "@ n.thing, ~ n.ax"),
    ("n.ax", "ax hatchet", "@ n.tool"),
    ("n.cohort", "generation cohort", "@ n.thing"),
    ("n.ground", "basis base", "@ n.thing"),
    ("v.act", "act do", "~ v.move, ~ v.stop"),
    ("v.move", "move travel", "@ v.act, ~ v.run, ! v.stop 1 1"),
    ("v.run", "run hurry", "@ v.move, ~ v.sprint"),
    ("v.sprint", "sprint dash", "@ v.run"),
    ("v.stop", "stop halt", "@ v.act, ! v.move 1 1"),
    ("v.hold", "hold restrain", "@ v.curb, ~ v.curb, ~ v.grip"),
    ("v.curb", "curb inhibit", "@ v.hold, ~ v.hold, ~ v.muzzle"),
    ("v.muzzle", "muzzle gag", "@ v.curb, ~ v.leash"),
    ("v.leash", "leash", "@ v.muzzle"),
    ("v.grip", "grip clasp", "@ v.hold"),
    ("v.name", "name", "+ n.man 1 2"),
    ("a.big", "big large", "! a.small 1 2, ! a.small 2 1, & a.huge"),
    ("a.small", "small little", "! a.big 1 2, ! a.big 2 1"),
    ("s.huge", "huge gigantic galore(ip)", "& a.big"),
    ("a.afraid", "afraid(p) fearful", ""),
    ("r.quickly", "quickly apace", "! r.slowly 1 1"),
    ("r.slowly", "slowly", "! r.quickly 1 1"),
    ("r.not", "not non", ""),
]
EXCEPTIONS = {
    "n": ["axes ax axis", "bases basis base", "men man", "oxen ox", "women woman"],
    "v": ["did do", "done do", "ran run"],
    "a": ["bigger big", "biggest big"],
    "r": ["slower slowly"],
}
TAGS = {
    "bias": {"NN": 0.5, "IN": 0.1, "FW": 9.0},
    "i suffix ing": {"VBG": 1.25, "NN": -0.125},
    "i suffix ran": {"VBD": 2.0},
    "i suffix ogs": {"NNS": 1.5},
    "i suffix men": {"NNS": 1.5},
    "i suffix kly": {"RB": 1.1},
    "i suffix wly": {"RB": 1.1},
    "i suffix est": {"JJS": 1.3},
    "i suffix s": {"NNS": 0.25},
    "i suffix": {"CD": 0.5},
    "i pref1 B": {"JJ": 0.75},
    "i pref1 R": {"NNP": 0.5, "NN": -0.3},
    "i pref1 1": {"CD": 0.2},
    "i-1 tag DT": {"NN": 0.2, "JJ": 0.4},
    "i-1 tag -START-": {"DT": 0.3},
    "i-2 tag -START2-": {"NNP": 0.1},
    "i-2 tag DT": {"NN": 0.1, "VBD": 0.2},
    "i tag+i-2 tag NN DT": {"VBD": 0.6},
    "i word !YEAR": {"CD": 1.0},
    "i word !DIGITS": {"CD": 0.7},
    "i word !HYPHEN": {"JJ": 0.6},
    "i word big": {"JJ": 1.0},
    "i word small": {"JJ": 1.0},
    "i word restrain": {"VB": 1.5},
    "i word hold": {"VB": 0.5, "NN": 0.0},
    "i word muzzle": {"VB": 0.3, "NN": 0.1, "JJ": 0.3},
    "i word curb": {"VB": 0.7},
    "i word move": {"VB": 0.9},
    "i word stop": {"VB": 0.9},
    "i word n't": {"RB": 1.0},
    "i word not": {"RB": 1.0},
    "i-1 tag+i word VB quickly": {"RB": 0.1},
    "i-1 word the": {"NN": 0.3, "NNS": 0.3},
    "i-1 suffix the": {"NN": 0.3, "VB": -0.7},
    "i-2 word the": {"VBD": 0.1, "VBZ": 0.1},
    "i+1 word dog": {"JJ": 0.35},
    "i+1 suffix ogs": {"JJ": 0.15},
    "i+1 word -END-": {".": 0.2},
    "i+2 word -END-": {"VBZ": 0.3, "VB": 0.3},
}
CLASSES = ["CD", "DT", "IN", "JJ", "JJS", "NN", "NNP", "NNS", "RB", "VB", "VBD", "VBG", "VBZ", "."]
TAGDICT = {"the": "DT", "a": "DT", "of": "IN", "dogses": "NNS", "huge": "JJ", "is": "", "ran": "VBD", "afraid": "JJ"}


def write_wordnet(folder):
    """Lays out the data files, in which a synset's number is its byte offset, then the indexes."""
    keys = {key.split(".")[1]: key for key, _, _ in SYNSETS}
    part_of = lambda key: "a" if key[0] == "s" else key[0]
    offsets = {}
    licence = "  1 An invented database, in the format of WordNet's.  \n"

    def line(key, lemmas, pointers):
        fields = [f"{offsets.get(key, 0):08}", "00", key[0], f"{len(lemmas.split()):02x}"]
        fields += [field for lemma in lemmas.split() for field in (lemma, "0")]
        pointers = [pointer.split() for pointer in pointers.split(", ") if pointer]
        fields.append(f"{len(pointers):03}")
        for symbol, other, *ends in pointers:
            other = keys[other.split(".")[1]]
            joined = "".join(f"{int(end):02x}" for end in ends) or "0000"
            fields += [symbol, f"{offsets.get(other, 0):08}", other[0], joined]
        if key[0] == "v":
            fields += "01 + 02 00".split()
        return " ".join(fields) + f' | what is meant by {lemmas.split()[0]}; "an example"  \n'

    for write in (False, True):
        for part, name in FILES.items():
            text = licence
            for synset in SYNSETS:
                if part_of(synset[0]) == part:
                    offsets[synset[0]] = len(text.encode())
                    text += line(*synset)
            if write:
                (folder / f"data.{name}").write_text(text)
    for part, name in FILES.items():
        index = {}
        for key, lemmas, _ in SYNSETS:
            for lemma in lemmas.split() if part_of(key) == part else ():
                index.setdefault(lemma.split("(")[0].lower(), []).append(offsets[key])
        rows = (
            f"{lemma} {part} {len(places)} 1 @ {len(places)} 0 " + " ".join(f"{place:08}" for place in places) + "  \n"
            for lemma, places in sorted(index.items())
        )
        (folder / f"index.{name}").write_text(licence + "".join(rows))
        (folder / f"{name}.exc").write_text("".join(f"{row}\n" for row in EXCEPTIONS[part]))
    (folder / "lexnames").write_text("00\tall\t1\n")


PAIRS = [
    ("The terrier ran quickly", "The dog is an animal"),
    ("Rex is a hound in Avalon in 1924 .", "A toy_terrier does n't run slowly"),
    ("The men restrain big dogs", "women muzzle a small animal 12 not"),
    ("hold the Hounds", "curb inhibit leash the dogses"),
    ("the axes of generations", "a hatchet is the bases of cohort"),
    ("Dog", "dog"),
    ("thing  of -5 five-part", "whatsit - 1924 19245 192456 ² ٣٤ 3D"),
    ("n't", "n't"),
    ("lap_dog of thing", "person creature"),
    ("the creature", "creature"),
    ("creature", "the animal terrier"),
    ("leash", "restrain the grip"),
    ("restrain whatsit", "the leash inhibit terrier"),
    ("the huge galore afraid", "biggest small little large"),
]
WORDS = (
    "the a of is The dog dogs Dogs dogses hound terrier toy_terrier Rex Avalon city animal creature walker man men women"
    " Woman gentleman person villain pirate axes bases oxen generation generations generate moved moving run ran sprinted"
    " stop halts did restrain restrained hold holding curb muzzle leash grip big bigger Big small little huge afraid"
    " quickly slowly slower not n't non 7 1924 12345 123456 well-known thing things tool . ,"
).split()
STEMMED = (
    "generously communities arsenal relational conditional rationally valenci hesitanci digitizer conformabli radicalli"
    " analogousli vietnamization operator feudalism decisiveness hopefulness callousness formaliti sensitiviti"
    " sensibiliti apologi triplicate formative electriciti electrical hopeful goodness revival allowance inference"
    " airliner adjustable defensible irritant replacement adoption communism activate homologous effective bowdlerize"
    " probate rate cease controll roll falling hissing fizzed failing filing happy sky dying skies singly innings"
    " exceeding dog's dogs' 'tis ’twas boys’s yyy youth boyish ties cries gas this kiwis gaps agreed feed bled motoring"
    " hoped hopping conflated troubled sized tanned dated rating ated abled used ebbing native alive ative lative"
    " motor_vehicle new_York über ÉTÉ café's 3rd a-b-ing 's ''s is us ox"
).split()


def main():
    data = OUT / "verifier" / "wordnet"
    data.mkdir(parents=True, exist_ok=True)
    write_wordnet(data)
    for kind, content in (("weights", TAGS), ("tagdict", TAGDICT), ("classes", CLASSES)):
        (data / f"{TAGGER}.{kind}.json").write_text(json.dumps(content, indent=0) + "\n")
    reference = Reference(data)
    choose = random.Random(0)
    pairs = [(first.split(" "), second.split(" ")) for first, second in PAIRS]
    pairs += [tuple(choose.choices(WORDS, k=choose.randint(1, 9)) for _ in range(2)) for _ in range(40)]
    sparse = lambda rows: [{str(at): value for at, value in enumerate(row) if value} for row in rows]
    texts = [text for pair in pairs for text in pair]
    forms = sorted({word for text in texts for word in text} | set("Canis galore mens earth_dog dogged".split()))
    synsets = []
    for form in forms:
        for part in FILES:
            for synset in reference.wordnet.synsets(form, part):
                related = lambda relation: sorted(other.lemma_names()[0] for other in getattr(synset, relation)())
                antonyms = {other.name() for lemma in synset.lemmas() for other in lemma.antonyms()}
                synsets.append([form, part, synset.lemma_names(), related("hypernyms"), related("hyponyms"), sorted(antonyms)])
    expected = {
        "pairs": [
            {
                "texts": pair,
                "tags": [[tag for _, tag in reference.tagger.tag(text)] for text in pair],
                "features": [sparse(rows) for rows in reference.pair(*pair)],
            }
            for pair in pairs
        ],
        "forms": forms,
        "synsets": synsets,
        "stems": [[word, reference.stem(word)] for word in STEMMED],
        "numbers": [
            [token, [float(np.float32(value)) for value in reference.number(token)]]
            for token in "0 7 42 007 1924 12345 99999 123456 ² ٣٤ 1.5 -1 x".split() + [""]
        ],
    }
    text = ",\n".join(f'"{key}": [\n' + ",\n".join(map(json.dumps, value)) + "\n]" for key, value in expected.items())
    (OUT / "features.json").write_text("{" + text + "}\n")


if __name__ == "__main__":
    main()
