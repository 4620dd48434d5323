"""Makes crates/generator/tests/data/nsmn: two tiny matching networks under the tensor names of the release of Nie, Chen
and Bansal (2019), with seeded weights, their logits for some pairs of texts (expected.json), and NLTK's words of some
sentences (treebank.json). `selector` has two labels and reads words. `verifier` has three labels and also reads the features of
nsmn_features.py, over the files of nsmn_wordnet.py, which must run first.

ELMo is AllenNLP's, with its states cleared before every text; the other parts of the network are implemented here after the
paper. AllenNLP 0.7.1 must be importable (`pip install --no-deps allennlp==0.7.1`, and what it imports), with PyTorch, h5py, numpy and what
nsmn_features.py needs.

    python scripts/reference/nsmn_parity.py
"""

import collections
import collections.abc
import hashlib
import json
import pathlib
import tempfile

for name in ("MutableMapping", "Mapping", "Sequence", "Iterable", "Callable"):  # Moved in Python 3.10.
    setattr(collections, name, getattr(collections.abc, name))

import h5py
import numpy
import torch
from allennlp.modules.elmo import Elmo, batch_to_ids
from nltk.tokenize.treebank import TreebankWordTokenizer
from nsmn_features import Reference
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

OUT = pathlib.Path(__file__).resolve().parents[2] / "crates" / "generator" / "tests" / "data" / "nsmn"
GLOVE, CELLS, PROJECTION, INNER = 6, 4, 5, 7
LETTER, FILTERS, HIGHWAYS, WIDTH, MEMORY = 4, [[1, 3], [2, 4], [5, 6]], 2, 5, 6
UNKNOWN = 7

WORDS = ["@@PADDING@@", *(f"@@UNKNOWN#{at}@@" for at in range(UNKNOWN)), "the", "dog", "barks", ".", "1820", "hound", "<t>",
         "@@@EMPTY@@@", "``", "(-.-)", "Dog", "never", "a", "line@@NEWLINE@@break"]
PAIRS = [
    ("Dog <t> the hound barks at 1820 dogs .", "A dog never barks ."),
    ("the", "the"),
    ("The terrier ran quickly in 1924 . Rex <t> the women restrain big dogs", "The dog is n't an animal of 1924"),
    ("", "nothing is known of this claim"),
    ("`` Häuser '' 👍🏽 of averyveryveryveryveryveryveryveryveryveryverylongwordindeed bark ; the animal <t> it barks", "Animals bark 12 times"),
]


SENTENCES = [
    'She said "No," and then, "Yes."', "Rock 'n' roll isn't dead; it's (only) sleeping...", "'Tis the season: 'twas cold.",
    "Telemundo is an American Spanish-language television network .", "The AT&T office at 5:30 p.m. cost $1,000.50 (50%)!",
    "\"Quoted\" at the start, and 'single' too.", "He'd've gone, they'll say -- we've seen: it.", "I'm gonna wanna gotta lemme gimme more'n cannot d'ye.",
    "A [bracketed] {thing} <here>, e.g. this; or that?", "Dr. No (film) was released in 1962.", "No full stop here", "Ends with a colon:",
    "e-mail me@example.com #1 @home & away", "O'Neill's dogs' bones; the '90s.", "``Already'' cut ``quotes''.", "Naïve café 北京 is “curly” ‘quoted’.",
    "Two. Sentences. Here.", "What?! Really?...", "3,000,000 or 3, 4 and 5", "( )", "a", "It ended (so he said.)", "He said: 'never.'", "N.Y.C.",
    "CAN'T WON'T SHE'LL I'VE Cannot", "x,y and x, y", 'He is 6\'2" tall', "They are \"here\"-ish",
]


def elmo(folder, random):
    """AllenNLP's module with random weights, which it reads from a file."""
    draw = lambda *shape: random.normal(0, 0.4, shape).astype("float32")
    filters = sum(count for _, count in FILTERS)
    options = {
        "lstm": {"use_skip_connections": True, "projection_dim": WIDTH, "cell_clip": 3, "proj_clip": 3, "dim": MEMORY, "n_layers": 2},
        "char_cnn": {"activation": "relu", "filters": FILTERS, "n_highway": HIGHWAYS, "embedding": {"dim": LETTER},
                     "n_characters": 262, "max_characters_per_token": 50},
    }
    (folder / "options.json").write_text(json.dumps(options))
    with h5py.File(folder / "weights.hdf5", "w") as file:
        file["char_embed"] = draw(261, LETTER) * 3
        for at, (width, count) in enumerate(FILTERS):
            file[f"CNN/W_cnn_{at}"], file[f"CNN/b_cnn_{at}"] = draw(1, width, LETTER, count), draw(count)
        for at in range(HIGHWAYS):
            for part in ("carry", "transform"):
                file[f"CNN_high_{at}/W_{part}"], file[f"CNN_high_{at}/b_{part}"] = draw(filters, filters), draw(filters)
        file["CNN_proj/W_proj"], file["CNN_proj/b_proj"] = draw(filters, WIDTH), draw(WIDTH)
        for way in range(2):
            for layer in range(2):
                cell = file.create_group(f"RNN_{way}/RNN/MultiRNNCell/Cell{layer}/LSTMCell")
                # Large enough that the memory and the states are clipped.
                cell["W_0"], cell["B"] = draw(2 * WIDTH, 4 * MEMORY) * 4, draw(4 * MEMORY)
                cell["W_P_0"] = draw(MEMORY, WIDTH) * 4
    made = Elmo(str(folder / "options.json"), str(folder / "weights.hdf5"), 1, dropout=0)
    for parameter in made.scalar_mix_0.parameters():
        parameter.data = torch.from_numpy(draw(*parameter.shape)) + 1
    return made


class Network(nn.Module):
    """The paper's network under the release's names."""

    def __init__(self, folder, random, labels, features):
        super().__init__()
        self.glove_embd_layer = nn.Embedding(len(WORDS), GLOVE)
        self.elmo_embd_layer = elmo(folder, random)
        layers = self.esim_layer = nn.Module()
        again = 2 * WIDTH + features
        layers.lstm_1 = nn.LSTM(GLOVE + again, CELLS, bidirectional=True, batch_first=True)
        layers.lstm_2 = nn.LSTM(PROJECTION + again, CELLS + 1, bidirectional=True, batch_first=True)
        layers.projection = nn.Linear(8 * CELLS, PROJECTION)
        layers.mlp_1, layers.sm = nn.Linear(8 * (CELLS + 1), INNER), nn.Linear(INNER, labels)
        layers.classifier = nn.Sequential(nn.Dropout(0.5), layers.mlp_1, nn.ReLU(), nn.Dropout(0.5), layers.sm)
        for name, parameter in self.named_parameters():
            if not name.startswith("elmo"):
                parameter.data = torch.from_numpy(random.normal(0, 0.5, tuple(parameter.shape)).astype("float32"))

    def vectors(self, words):
        self.elmo_embd_layer._elmo_lstm._elmo_lstm._states = None
        return self.elmo_embd_layer(batch_to_ids([words]))["elmo_representations"][0][0]

    def forward(self, texts, features):
        layers = self.esim_layer
        firsts, seconds = [], []
        for words, more in zip(texts, features):
            again = torch.cat([self.vectors(words), torch.tensor(more).reshape(len(words), -1)], 1)
            glove = self.glove_embd_layer(torch.tensor([number(word) for word in words]))
            firsts.append(layers.lstm_1(torch.cat([glove, again], 1)[None])[0][0])
            seconds.append(again)
        alike = firsts[0] @ firsts[1].T
        partners = [alike.softmax(1) @ firsts[1], alike.T.softmax(1) @ firsts[0]]
        greatest = []
        for own, partner, again in zip(firsts, partners, seconds):
            joined = layers.projection(torch.cat([own, partner, own - partner, own * partner], 1)).relu()
            greatest.append(layers.lstm_2(torch.cat([joined, again], 1)[None])[0][0].max(0).values)
        p, q = greatest
        return layers.classifier(torch.cat([p, q, (p - q).abs(), p * q]))


def number(word):
    if word in WORDS:
        return WORDS.index(word)
    return 1 + int(hashlib.sha1(word.encode()).hexdigest(), 16) % UNKNOWN


def write(name, labels, features_of):
    folder = OUT / name
    folder.mkdir(parents=True, exist_ok=True)
    random = numpy.random.RandomState(labels)
    cases = []
    for at, (first, second) in enumerate(PAIRS):
        words = [first.split(" ") if first else [], second.split(" ")]
        relevance = [round(0.2 + 0.1 * (place % 7), 2) for place in range(len(words[0]))]
        cases.append({"first": words[0], "relevance": relevance, "second": words[1]})
    with tempfile.TemporaryDirectory() as scratch:
        width = features_of(["a"], ["a"], [1.0])[0].shape[1]
        network = Network(pathlib.Path(scratch), random, labels, width).eval()
        for case in cases:
            first = case["first"] or ["@@@EMPTY@@@"]
            relevance = case["relevance"] or [0.0]
            with torch.no_grad():
                features = features_of(first, case["second"], relevance)
                case["logits"] = network([first, case["second"]], [values.tolist() for values in features]).tolist()
                case["elmo"] = network.vectors(case["second"]).flatten().tolist()
    torch.save(network.state_dict(), folder / "model", _use_new_zipfile_serialization=False)
    lines = [f"{word}<(-.-)>{at}" for at, word in enumerate(WORDS)]
    (folder / "tokens.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (folder / "unk_count_namespaces.txt").write_text(f"tokens###{UNKNOWN}\nlabels###1\n")
    (folder / "expected.json").write_text(json.dumps({"cases": cases}, ensure_ascii=False))


def none(first, second, relevance):
    return [numpy.zeros((len(words), 0), dtype="float32") for words in (first, second)]


def of_wordnet(reference):
    def features(first, second, relevance):
        values = [numpy.array(rows, dtype="float32") for rows in reference.pair(first, second)]
        sure = [numpy.array(relevance, dtype="float32"), numpy.ones(len(second), dtype="float32")]
        return [numpy.concatenate([rows, column[:, None]], 1) for rows, column in zip(values, sure)]

    return features


if __name__ == "__main__":
    write("selector", 2, none)
    write("verifier", 3, of_wordnet(Reference(OUT / "verifier" / "wordnet")))
    words = [[sentence, TreebankWordTokenizer().tokenize(sentence)] for sentence in SENTENCES]
    (OUT / "treebank.json").write_text(json.dumps(words, ensure_ascii=False))
