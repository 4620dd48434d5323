"""The compiled module. Its classes are public as `sporran.NAME`."""

from collections.abc import Callable, Iterator, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Literal, overload

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Self

_Path = str | PathLike[str]
_Progress = Callable[[dict[str, Any]], None]

class Passage:
    """A passage with its place."""

    def __init__(
        self, id: int, page_id: str, title: str, section: str, text: str, provenance_json: str
    ) -> None: ...

    id: int
    """The number of the passage, from 0."""
    page_id: str
    """The id of its page; empty for a text of `BM25.from_texts`."""
    title: str
    section: str
    text: str
    provenance_json: str
    """The provenance as JSON, as in KILT's predictions; empty for a text of `BM25.from_texts`."""

class Hit:
    """A found passage."""

    def __init__(self, id: int, score: float, passage: Passage) -> None: ...

    id: int
    """The number of the passage, from 0: the place of a text in the list of `BM25.from_texts`."""
    score: float
    """Greater is better."""
    passage: Passage

class PassageStore:
    """The passages of pages, on disk and memory-mapped. It is pickled as its path."""

    @staticmethod
    def build(
        source: _Path,
        path: _Path,
        split: Literal["words", "paragraph", "section", "page"] = "words",
        progress: _Progress | None = None,
    ) -> PassageStore:
        """Builds a store of a knowledge source (JSON lines in KILT's layout) in the folder `path`, and opens it."""

    @staticmethod
    def from_folder(
        sources: _Path | Sequence[_Path],
        *,
        cache: _Path | None = None,
        progress: _Progress | None = None,
        **options: Any,
    ) -> PassageStore:
        """Reads the documents of files and folders (text, Markdown, HTML, PDF, docx, odt, epub, tables), and opens the store of
        their passages. The store is kept in the folder `cache`, by default that of `sporran ask`, and is built again when files
        change. Passages are those of `sporran ask`. Keyword arguments are the keys of the table `[source]` of a config."""

    @staticmethod
    def open(path: _Path) -> PassageStore:
        """Opens the store in a folder."""

    @property
    def path(self) -> str: ...
    @property
    def pages(self) -> int: ...
    def __len__(self) -> int: ...
    def __getitem__(self, number: int) -> Passage: ...
    def __iter__(self) -> Iterator[Passage]: ...
    def passages_of(self, page_id: str) -> list[Passage]:
        """The passages of the page with this id."""

class Evidence:
    """A passage as evidence, with the place in its file."""

    def __init__(
        self,
        file: str,
        page: int | None,
        line: int | None,
        row: int | None,
        title: str,
        section: str,
        paragraph: int,
        start: int,
        end: int,
        text: str,
        highlight: tuple[int, int],
        score: float,
    ) -> None: ...

    file: str
    """The file, or the title of a page without a file."""
    page: int | None
    line: int | None
    row: int | None
    title: str
    section: str
    paragraph: int
    start: int
    """The first character, in the paragraph in which the passage starts."""
    end: int
    """The character after the last one, in the paragraph in which it ends."""
    text: str
    highlight: tuple[int, int]
    """The sentence that supports the answer best: `text[highlight[0]:highlight[1]]`."""
    score: float

class Answer:
    """An answer with its evidence."""

    def __init__(
        self,
        question: str,
        answer: str,
        evidence: list[Evidence],
        sentences: list[tuple[str, list[int], bool]],
        is_generated: bool,
    ) -> None: ...

    question: str
    answer: str
    """The answer with citations such as `[1]`; empty without a generator."""
    evidence: list[Evidence]
    """The best passages, best first. `[n]` refers to `evidence[n - 1]`."""
    sentences: list[tuple[str, list[int], bool]]
    """The sentences of the answer: the text, the numbers of the passages that support it, and whether one does."""
    is_generated: bool

class Asker:
    """Answers questions over files and folders, as `sporran ask`. The indexes are kept in the folder `cache`, by default that of the
    command. Without `model` and `llm`, the best passages are the answer. It is pickled as its arguments, without `progress`."""

    def __init__(
        self,
        sources: _Path | Sequence[_Path],
        *,
        model: _Path | None = None,
        llm: str | None = None,
        llm_model: str = "default",
        llm_key_env: str | None = None,
        embed: _Path | None = None,
        rerank: _Path | None = None,
        verify: _Path | None = None,
        passages: int = 5,
        max_new_tokens: int = 200,
        filters: Sequence[dict[str, Any]] | None = None,
        cache: _Path | None = None,
        precision: str = "f32",
        device: str = "cpu",
        progress: _Progress | None = None,
    ) -> None: ...
    def ask(self, question: str) -> Answer:
        """Answers a question."""

class BM25:
    """An index of words, scored by BM25. The options of an index are keyword arguments: `k1` (0.9), `b` (0.4), `title_weight`
    (1), `drop_question_words` (false), and `analyzer`, a dict as the table `[retriever.analyzer]` of a config."""

    @staticmethod
    def from_texts(
        texts: Sequence[str],
        titles: Sequence[str] | None = None,
        *,
        k1: float = 0.9,
        b: float = 0.4,
        title_weight: int = 1,
        drop_question_words: bool = False,
        analyzer: dict[str, Any] = ...,
    ) -> BM25:
        """Indexes texts in a temporary folder. It is pickled as its texts."""

    @staticmethod
    def build(
        store: PassageStore,
        path: _Path,
        *,
        k1: float = 0.9,
        b: float = 0.4,
        title_weight: int = 1,
        drop_question_words: bool = False,
        analyzer: dict[str, Any] = ...,
    ) -> BM25:
        """Indexes the passages of a store in the folder `path`. It is pickled as its path."""

    @staticmethod
    def open(store: PassageStore, path: _Path) -> BM25:
        """Opens the index of a store."""

    def __len__(self) -> int: ...
    @overload
    def search(self, queries: str, k: int = 10) -> list[Hit]: ...
    @overload
    def search(self, queries: list[str] | tuple[str, ...], k: int = 10) -> list[list[Hit]]:
        """The k best passages of each query, best first; ties by number."""

class Encoder:
    """A bi-encoder: texts as vectors. `model` is a folder, the name of an imported model, or `hf:ID[@REV]`. Another name, such as
    `all-MiniLM-L6-v2`, is that of a model of `sentence-transformers` on the hub."""

    def __init__(
        self,
        model: _Path,
        *,
        pooling: str | None = None,
        prompt: str | None = None,
        prompt_name: str | None = None,
        dimensions: int | None = None,
        max_tokens: int | None = None,
        precision: str = "f32",
        device: str = "cpu",
        batch_tokens: int = 4096,
    ) -> None: ...
    @property
    def dimensions(self) -> int:
        """The length of a vector."""

    def encode(
        self,
        texts: str | Sequence[str],
        *,
        batch_size: int = 256,
        prompt: str | None = None,
        prompt_name: str | None = None,
    ) -> NDArray[np.float32]:
        """The vectors of texts, with the shape (texts, dimensions); of one text, (dimensions,). `batch_size` is the number of
        texts that are encoded together. `prompt` is a text before each text; `prompt_name` is that of a prompt of the folder."""

    def encode_query(
        self,
        texts: str | Sequence[str],
        *,
        batch_size: int = 256,
        prompt: str | None = None,
        prompt_name: str | None = None,
    ) -> NDArray[np.float32]:
        """As `encode`, with the folder's prompt for queries, unless this encoder has a `prompt` of its own."""

    def encode_document(
        self,
        texts: str | Sequence[str],
        *,
        batch_size: int = 256,
        prompt: str | None = None,
        prompt_name: str | None = None,
    ) -> NDArray[np.float32]:
        """As `encode`, with the folder's prompt for documents, unless this encoder has a `prompt` of its own."""

class DenseIndex:
    """An index over vectors. The options of a kind are keyword arguments, as in the table `[retriever.index]` of a config."""

    @staticmethod
    def build(
        vectors: NDArray[np.float32],
        kind: Literal["flat", "pq", "hnsw"] = "flat",
        similarity: Literal["inner-product", "cosine", "euclidean", "manhattan"] = "inner-product",
        path: _Path | None = None,
        **options: Any,
    ) -> DenseIndex:
        """Indexes vectors with the shape (vectors, values), in the folder `path` or in a temporary one."""

    @staticmethod
    def open(
        path: _Path,
        kind: Literal["flat", "pq", "hnsw"] = "flat",
        similarity: Literal["inner-product", "cosine", "euclidean", "manhattan"] = "inner-product",
        **options: Any,
    ) -> DenseIndex:
        """Opens an index that `build` wrote, with the same kind and options."""

    @property
    def dimensions(self) -> int: ...
    def __len__(self) -> int: ...
    def search(
        self, queries: NDArray[np.float32], k: int = 10
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """The k nearest vectors of each query: scores and numbers, both with the shape (queries, k), best first. Where the index
        has fewer vectors, the score is -inf and the number -1."""

class Reranker:
    """Scores of passages for a query: the folder of a cross-encoder, of a reranker of `sporran train`, or of a language model
    that answers yes or no, which takes an `instruction`."""

    def __init__(
        self,
        model: _Path,
        *,
        instruction: str | None = None,
        raw_scores: bool = False,
        max_tokens: int | None = None,
        precision: str = "f32",
        device: str = "cpu",
        batch_tokens: int = 4096,
    ) -> None: ...
    def score(self, query: str, passages: str | Sequence[str]) -> NDArray[np.float32]:
        """The score of each passage, with the shape (passages,). Greater is better. A cross-encoder's scores pass through the
        activation of its folder, unless `raw_scores` is set."""

class Generator:
    """A sequence-to-sequence or decoder-only model: a folder, a GGUF file, the name of an imported model, or `hf:ID[@REV]`.
    Options of generation are keyword arguments, as in the table `[generator.generation]` of a config: `max_new_tokens`,
    `num_beams`, `do_sample`, `temperature`, `seed` .."""

    def __init__(
        self,
        model: _Path,
        *,
        chat: bool = False,
        system: str = "",
        precision: str = "f32",
        device: str = "cpu",
        engine: Literal["auto", "packed", "candle"] = "auto",
        max_input_tokens: int | None = None,
        batch_size: int = 16,
        stops: Sequence[str] = ...,
        **generation: Any,
    ) -> None: ...
    @overload
    def generate(self, prompts: str) -> str: ...
    @overload
    def generate(self, prompts: list[str] | tuple[str, ...]) -> list[str]:
        """The text for each prompt. With `chat`, a prompt is a user's turn in the model's chat template."""

class FactExtractor:
    def __new__(cls, config: _Path, overrides: Sequence[str] = ...) -> Self: ...
    def extract_json(self, texts: Sequence[str]) -> list[str]: ...

class TripleScorer:
    def __init__(self, kb: _Path, model: _Path | None = None, rules: _Path | None = None) -> None: ...
    def complete_json(
        self,
        subject: str | None,
        relation: str | None,
        object: str | None,
        k: int,
        chains: int,
        known: bool,
    ) -> str: ...

def text_hit(id: int, score: float, title: str, text: str) -> Hit: ...
def evaluate_kilt(gold: _Path, guess: _Path) -> str: ...
def evaluate_trec(
    qrels: _Path, run: _Path, measures: Sequence[str], complete: bool, exclude_self: bool
) -> str: ...
def run(config: _Path, overrides: Sequence[str], progress: _Progress | None = None) -> list[tuple[str, str]]: ...
def train(
    config: _Path, overrides: Sequence[str], progress: _Progress | None = None
) -> tuple[str, str, list[str]]: ...
def shard(
    verb: str, config: _Path, overrides: Sequence[str], index: int, of: int, progress: _Progress | None = None
) -> Path: ...
def merge(folders: Sequence[_Path], progress: _Progress | None = None) -> list[tuple[str, str]]: ...
def check(config: _Path, overrides: Sequence[str]) -> list[str]: ...
def program(arguments: Sequence[str]) -> int: ...
def version() -> str: ...
