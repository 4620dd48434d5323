"""The token features of the released NSMN (Nie, Chen and Bansal 2019), by nltk, NumPy and scikit-learn.

Needs nltk==3.8.1 (later versions strip a word's ending only once), numpy and scikit-learn.
"""

import json
import warnings
from pathlib import Path

import numpy as np
from nltk import SnowballStemmer
from nltk.corpus.reader.wordnet import WordNetCorpusReader
from nltk.tag import PerceptronTagger
from sklearn.utils import murmurhash3_32

TAGGER = "averaged_perceptron_tagger_eng"


class Reader(WordNetCorpusReader):
    """nltk's reader, without its map between versions of WordNet, which needs more data."""

    def map_wn30(self):
        return None


class Reference:
    """The release's definitions, as sets of words."""

    def __init__(self, folder):
        warnings.simplefilter("ignore")
        self.wordnet = Reader(str(folder), None)
        self.tagger = PerceptronTagger(load=False)
        read = lambda kind: json.loads((Path(folder) / f"{TAGGER}.{kind}.json").read_text())
        self.tagger.model.weights, self.tagger.tagdict = read("weights"), read("tagdict")
        self.tagger.classes = self.tagger.model.classes = set(read("classes"))
        self.stem = SnowballStemmer("english").stem
        np.random.seed(6)
        self.table = np.random.uniform(-0.1, 0.1, (20000, 5))
        self.closures, self.words = {}, {}

    def closure(self, synset, relation):
        if (synset, relation) not in self.closures:
            near = getattr(synset, relation)()
            self.closures[synset, relation] = set(near).union(*(self.closure(other, relation) for other in near))
        return self.closures[synset, relation]

    def with_stems(self, names):
        names = set(names)
        return names | {self.stem(name) for name in names}

    def names(self, synsets):
        return self.with_stems(name for synset in synsets for name in synset.lemma_names())

    def word(self, word, part):
        """The antonyms of a word and, for both relations, the words within one step, two steps, and any number."""
        if (word, part) in self.words:
            return self.words[word, part]
        near = {
            synset
            for own in self.wordnet.synsets(word, part)
            for lemma in own.lemma_names()
            for synset in self.wordnet.synsets(lemma, part)
        }
        sets = [self.with_stems(other.name() for synset in near for lemma in synset.lemmas() for other in lemma.antonyms())]
        for relation in ("hyponyms", "hypernyms"):
            follow = lambda synset: getattr(synset, relation)()
            for steps in (1, 2):
                sets.append(self.names(other for synset in near for other in synset.closure(follow, steps)))
            everything = set()
            for synset in near:
                try:
                    everything |= self.closure(synset, relation)
                except RecursionError:
                    pass
            sets.append(self.names(everything) - {word, self.stem(word)})
        self.words[word, part] = sets
        return sets

    def match(self, word):
        word = word.lower()
        names = {name for synset in self.wordnet.synsets(word) for name in synset.lemma_names()}
        return names | {"not"} if word == "n't" else names

    def number(self, token):
        if len(token) > 5 or not token.isdigit():
            return np.zeros(5)
        return self.table[murmurhash3_32(token, positive=True) % 20000]

    def rows(self, tokens, others, side):
        parts = [{"J": "a", "V": "v", "N": "n", "R": "r"}.get(tag[0], "") for _, tag in self.tagger.tag(others)]
        sets = [set().union(*kind) for kind in zip(*(self.word(*pair) for pair in zip(others, parts)))]
        matches = set().union(*map(self.match, others))
        rows = []
        for token in tokens:
            own = {token, self.stem(token)}
            has = [bool(own & kind) for kind in sets]
            steps = []
            for near, two, all_ in (has[1:4], has[4:7]):
                steps.append([near, two and not near, all_ and not near and not two])
            relations = [bool(self.match(token) & matches), has[0], any(has[1:4]), any(has[4:7])]
            relations += [step[level] for level in range(3) for step in steps]
            values = [float(value and place in (side, 2)) for value in relations for place in range(3)]
            rows.append(values + [float(np.float32(value)) for value in self.number(token)])
        return rows

    def pair(self, premise, hypothesis):
        return self.rows(premise, hypothesis, 0), self.rows(hypothesis, premise, 1)
