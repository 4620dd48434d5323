//! The text that a model reads: passages and input in one template, within a budget of tokens.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sporran_checkpoint::Tokenizer;
use sporran_kilt::{Query, Task};

use crate::{Candidate, Error, Request, Result};

pub(crate) const START: &str = "[START_ENT]";
const END: &str = "[END_ENT]";

/// Counts the tokens of texts.
pub trait TokenCounter: Send + Sync {
    /// The number of tokens of a model's input.
    ///
    /// # Errors
    /// Where the tokenizer fails.
    fn count(&self, text: &str) -> Result<usize>;

    /// The last `most` tokens of a text; the whole text if it has no more.
    ///
    /// # Errors
    /// Where the tokenizer fails.
    fn last(&self, text: &str, most: usize) -> Result<String>;
}

impl TokenCounter for Tokenizer {
    fn count(&self, text: &str) -> Result<usize> {
        Ok(self.encode(text, None)?.len())
    }

    fn last(&self, text: &str, most: usize) -> Result<String> {
        let tokens = self.encode_plain(text)?;
        if tokens.len() <= most {
            return Ok(text.to_owned());
        }
        let kept = self.decode(&tokens[tokens.len() - most..])?;
        // A character may have been cut.
        Ok(kept.trim_start_matches(char::REPLACEMENT_CHARACTER).trim_start().to_owned())
    }
}

/// Tokens where there is no tokenizer: one for each four bytes of a word, rounded up.
#[derive(Clone, Copy, Debug, Default)]
pub struct EstimatedTokens;

impl TokenCounter for EstimatedTokens {
    fn count(&self, text: &str) -> Result<usize> {
        Ok(text.split_whitespace().map(|word| word.len().div_ceil(4)).sum())
    }

    /// Whole words.
    fn last(&self, text: &str, most: usize) -> Result<String> {
        let mut left = most;
        let mut start = text.len();
        for word in text.split_whitespace().rev() {
            let tokens = word.len().div_ceil(4);
            if tokens > left {
                return Ok(text[start..].to_owned());
            }
            left -= tokens;
            // A word is a part of the text.
            start = word.as_ptr() as usize - text.as_ptr() as usize;
        }
        Ok(text.to_owned())
    }
}

/// The position of the passages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// Before the input.
    PassagesFirst,
    /// After the input.
    #[default]
    InputFirst,
}

/// How the text that a model reads is put together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct PromptOptions {
    /// Passages that are read, best first; 0 answers from memory.
    #[schemars(extend("x-unit" = "passages"))]
    pub passages: usize,
    /// Words of a passage that are read.
    #[schemars(extend("x-unit" = "words"))]
    pub passage_words: usize,
    /// A passage, with `{title}` and `{text}`; `{rank}` is its place in the order in which passages were found, 1 for the best.
    pub passage: String,
    /// The separator between two passages, and between passages and input.
    pub separator: String,
    /// The input, with `{input}` and `{task}` (`fact`, `entity`, `slot`, `question`, `explain` or `dialogue`).
    pub input: String,
    /// The position of the passages.
    pub order: Order,
    /// Entity linking: words kept on each side of the tagged mention.
    #[schemars(extend("x-unit" = "words"))]
    pub mention_context_words: usize,
    /// Tokens of the input without the template, at most. A longer input loses its beginning. The default is no
    /// limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1), extend("x-unit" = "tokens"))]
    pub max_input_tokens: Option<usize>,
    /// The marks of the speakers of a dialogue, whose turns are the lines of the input. Marks alternate, and the last turn has the
    /// first mark. Marked turns have no line breaks between them. Without marks, the lines stay as they are.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub speakers: Vec<String>,
    /// Tokens of the whole text, at most. Only passages are cut, unless the input itself is too long.
    #[schemars(range(min = 1), extend("x-unit" = "tokens"))]
    pub max_tokens: usize,
}

impl Default for PromptOptions {
    fn default() -> Self {
        Self {
            passages: 3,
            passage_words: 100,
            passage: "{title} / {text}".into(),
            separator: " // ".into(),
            input: "{input}".into(),
            order: Order::default(),
            mention_context_words: 30,
            max_input_tokens: None,
            speakers: Vec::new(),
            max_tokens: 512,
        }
    }
}

/// Makes prompts.
#[derive(Clone, Debug)]
pub struct Prompt {
    options: PromptOptions,
}

impl Prompt {
    /// Prompts of that form.
    ///
    /// # Errors
    /// [`Error::Option`] for a template without its field, or a budget of no tokens.
    pub fn new(options: PromptOptions) -> Result<Self> {
        let wrong = |option, expected, found: String| Err(Error::Option { option, expected, found });
        if !options.input.contains("{input}") {
            return wrong("prompt.input", "a template with `{input}`", options.input);
        }
        if !options.passage.contains("{text}") {
            return wrong("prompt.passage", "a template with `{text}`", options.passage);
        }
        if options.max_input_tokens == Some(0) {
            return wrong("prompt.max-input-tokens", "at least 1", "0".into());
        }
        if options.max_tokens < 2 {
            return wrong("prompt.max-tokens", "at least 2", options.max_tokens.to_string());
        }
        Ok(Self { options })
    }

    /// The options.
    pub fn options(&self) -> &PromptOptions {
        &self.options
    }

    /// The text of a request, with at most `max_tokens` tokens unless the input alone is longer.
    ///
    /// # Errors
    /// Where the tokenizer fails.
    pub fn text(&self, request: &Request<'_>, tokens: &dyn TokenCounter) -> Result<String> {
        self.text_from(1, request, tokens)
    }

    /// That text where the request's first passage has the rank `first`.
    ///
    /// # Errors
    /// Where the tokenizer fails.
    pub fn text_from(
        &self,
        first: usize,
        request: &Request<'_>,
        tokens: &dyn TokenCounter,
    ) -> Result<String> {
        let input = self.input(request.query, tokens)?;
        let mut words = self.options.passage_words;
        loop {
            let text = self.join(&input, (first, request.passages), words);
            let count = tokens.count(&text)?;
            if count <= self.options.max_tokens || words == 0 {
                return Ok(text);
            }
            // All passages are shortened equally. A few rounds reach the budget, since tokens are about proportional to words.
            let fitting = words * self.options.max_tokens / count;
            words = fitting.min(words - 1);
        }
    }

    fn input(&self, query: &Query, tokens: &dyn TokenCounter) -> Result<String> {
        let mut text = match query.text.contains(START) && query.text.contains(END) {
            true => self.around_mention(&query.text),
            false => query.text.clone(),
        };
        if let Some(most) = self.options.max_input_tokens {
            text = tokens.last(&text, most)?;
        }
        let text = marked(&text, &self.options.speakers);
        Ok(self.options.input.replace("{task}", task_word(query)).replace("{input}", &text))
    }

    fn around_mention(&self, text: &str) -> String {
        let kept = self.options.mention_context_words;
        let (before, rest) = text.split_once(START).unwrap_or(("", text));
        let (mention, after) = rest.split_once(END).unwrap_or((rest, ""));
        let before: Vec<&str> = before.split_whitespace().collect();
        let before = &before[before.len().saturating_sub(kept)..];
        let words = before.iter().copied().chain([START, mention.trim(), END]);
        words.chain(after.split_whitespace().take(kept)).collect::<Vec<_>>().join(" ")
    }

    /// A passage, cut to `words` words.
    pub(crate) fn passage(&self, rank: usize, title: &str, text: &str, words: usize) -> String {
        let text: Vec<&str> = text.split_whitespace().take(words).collect();
        let template = self.options.passage.replace("{rank}", &rank.to_string());
        template.replace("{title}", title).replace("{text}", &text.join(" "))
    }

    fn join(&self, input: &str, (first, passages): (usize, &[Candidate<'_>]), words: usize) -> String {
        let passages = if words == 0 { &[] } else { &passages[..passages.len().min(self.options.passages)] };
        let passages = (first..)
            .zip(passages)
            .map(|(rank, found)| self.passage(rank, &found.passage.title, &found.passage.text, words));
        let mut parts: Vec<String> = passages.collect();
        match self.options.order {
            Order::PassagesFirst => parts.push(input.to_owned()),
            Order::InputFirst => parts.insert(0, input.to_owned()),
        }
        parts.join(&self.options.separator)
    }
}

/// The lines of a text, each after the mark of its speaker. The last line has the first mark.
fn marked(text: &str, speakers: &[String]) -> String {
    if speakers.is_empty() {
        return text.to_owned();
    }
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    let mark =
        |(at, line): (usize, &&str)| format!("{}{line}", speakers[(lines.len() - 1 - at) % speakers.len()]);
    lines.iter().enumerate().map(mark).collect()
}

/// The `{task}` word: the kind of answer that the task expects.
fn task_word(query: &Query) -> &'static str {
    use sporran_kilt::Dataset;
    match query.dataset {
        Some(Dataset::Eli5) => "explain",
        Some(dataset) => match dataset.task() {
            Task::FactChecking => "fact",
            Task::EntityLinking => "entity",
            Task::SlotFilling => "slot",
            Task::OpenDomainQa => "question",
            Task::Dialogue => "dialogue",
        },
        None if query.text.contains(START) => "entity",
        None => "question",
    }
}

#[cfg(test)]
mod tests {
    use sporran_kilt::{Dataset, Passage};

    use super::*;

    /// A tokenizer whose tokens are white-space words.
    fn tokenizer() -> Tokenizer {
        let json = r#"{"version":"1.0","truncation":null,"padding":null,"added_tokens":[],"normalizer":null,
            "pre_tokenizer":{"type":"WhitespaceSplit"},"post_processor":null,"decoder":null,
            "model":{"type":"WordLevel","vocab":{"<unk>":0},"unk_token":"<unk>"}}"#;
        Tokenizer::from_json(std::path::Path::new("tokenizer.json"), json.into()).unwrap()
    }

    fn passage(title: &str, text: &str) -> Passage {
        Passage {
            page_id: "1".into(),
            title: title.into(),
            start_paragraph: 1,
            end_paragraph: 1,
            end_character: 1,
            ..Passage::of_text(text)
        }
    }

    fn text(options: PromptOptions, dataset: Dataset, input: &str, passages: &[Passage]) -> String {
        let query = Query { dataset: Some(dataset), ..Query::of_text(1i64, input) };
        let candidates: Vec<_> = passages.iter().map(|passage| Candidate { passage, score: 1.0 }).collect();
        let request = Request { query: &query, passages: &candidates };
        Prompt::new(options).unwrap().text(&request, &tokenizer()).unwrap()
    }

    #[test]
    fn passages_come_before_or_after_the_input() {
        let passages = [passage("A", "a b c"), passage("B", "d"), passage("C", "e")];
        let options = PromptOptions { passages: 2, passage_words: 2, ..PromptOptions::default() };
        let first =
            PromptOptions { order: Order::PassagesFirst, input: "{task}: {input}".into(), ..options.clone() };
        assert_eq!(text(first, Dataset::Nq, "who?", &passages), "A / a b // B / d // question: who?");
        assert_eq!(text(options, Dataset::Nq, "who?", &passages), "who? // A / a b // B / d");
    }

    #[test]
    fn passages_can_show_their_ranks() {
        let passages = [passage("A", "a"), passage("B", "b")];
        let options = PromptOptions { passage: "{rank}. {title} {text}".into(), ..PromptOptions::default() };
        assert_eq!(text(options.clone(), Dataset::Nq, "who?", &passages), "who? // 1. A a // 2. B b");
        let query = Query::of_text(1i64, "who?");
        let found = [Candidate { passage: &passages[1], score: 1.0 }];
        let request = Request { query: &query, passages: &found };
        let second = Prompt::new(options).unwrap().text_from(2, &request, &tokenizer()).unwrap();
        assert_eq!(second, "who? // 2. B b");
    }

    #[test]
    fn passages_give_way_to_the_budget_and_the_input_does_not() {
        let passages = [passage("A", "1 2 3 4 5 6 7 8"), passage("B", "1 2 3 4 5 6 7 8")];
        let options = |max_tokens| PromptOptions { max_tokens, ..PromptOptions::default() };
        let whole = text(options(100), Dataset::Nq, "q1 q2 q3", &passages);
        assert_eq!(whole.split_whitespace().count(), 3 + 2 * (1 + 2 + 8));
        let cut = text(options(17), Dataset::Nq, "q1 q2 q3", &passages);
        assert!(cut.starts_with("q1 q2 q3 // A / 1 2"), "{cut}");
        assert!(cut.split_whitespace().count() <= 17, "{cut}");
        assert_eq!(text(options(2), Dataset::Nq, "q1 q2 q3", &passages), "q1 q2 q3");
    }

    #[test]
    fn tokens_are_estimated_by_words_without_a_tokenizer() {
        let text = "a  four fives ééé x";
        assert_eq!(EstimatedTokens.count(text).unwrap(), 1 + 1 + 2 + 2 + 1);
        assert_eq!(EstimatedTokens.last(text, 7).unwrap(), text);
        assert_eq!(EstimatedTokens.last(text, 6).unwrap(), "four fives ééé x");
        assert_eq!(EstimatedTokens.last(text, 4).unwrap(), "ééé x");
        assert_eq!(EstimatedTokens.last(text, 0).unwrap(), "");
        let passages = [passage("A", "1 2 3 4 5 6 7 8"), passage("B", "1 2 3 4 5 6 7 8")];
        let query = Query::of_text(1i64, "q1 q2 q3");
        let candidates: Vec<_> = passages.iter().map(|passage| Candidate { passage, score: 1.0 }).collect();
        let request = Request { query: &query, passages: &candidates };
        let options = PromptOptions { max_tokens: 17, ..PromptOptions::default() };
        let cut = Prompt::new(options).unwrap().text(&request, &EstimatedTokens).unwrap();
        assert!(
            cut.starts_with("q1 q2 q3 // A / 1 2") && EstimatedTokens.count(&cut).unwrap() <= 17,
            "{cut}"
        );
    }

    #[test]
    fn turns_have_the_marks_of_their_speakers() {
        let speakers = ["<1>", "<2>"].map(str::to_owned).to_vec();
        let options = PromptOptions { speakers, passages: 0, ..PromptOptions::default() };
        assert_eq!(text(options.clone(), Dataset::Wow, "a b\n\nc\nd", &[]), "<1>a b<2>c<1>d");
        assert_eq!(text(options.clone(), Dataset::Wow, "a\nb", &[]), "<2>a<1>b");
        let three = PromptOptions { speakers: ["x", "y", "z"].map(str::to_owned).to_vec(), ..options };
        assert_eq!(text(three, Dataset::Wow, "1\n2\n3\n4", &[]), "x1z2y3x4");
    }

    #[test]
    fn an_input_that_is_too_long_loses_its_beginning() {
        let data = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../transformers/tests/data/llama");
        let tokenizer = Tokenizer::from_folder(&data).unwrap();
        let query = Query::of_text(1i64, "where was the author of the book born?");
        let request = Request { query: &query, passages: &[] };
        let of = |max_input_tokens| {
            let input = "Talk:\n{input}".into();
            let options = PromptOptions { max_input_tokens, input, ..PromptOptions::default() };
            Prompt::new(options).unwrap().text(&request, &tokenizer).unwrap()
        };
        let count = tokenizer.encode_plain(&query.text).unwrap().len();
        assert_eq!(of(None), format!("Talk:\n{}", query.text));
        assert_eq!(of(Some(count)), of(None));
        let cut = of(Some(4));
        let kept = cut.strip_prefix("Talk:\n").unwrap();
        assert!(!kept.is_empty() && kept.len() < query.text.len() && query.text.ends_with(kept), "{cut}");
        assert!(tokenizer.encode_plain(kept).unwrap().len() <= 4 + 1, "{cut}");
        let none = PromptOptions { max_input_tokens: Some(0), ..PromptOptions::default() };
        assert!(Prompt::new(none).unwrap_err().to_string().contains("prompt.max-input-tokens"));
    }

    #[test]
    fn entity_linking_reads_the_words_around_the_mention() {
        let options = PromptOptions { mention_context_words: 2, ..PromptOptions::default() };
        let input = "a b c [START_ENT] New York [END_ENT] d e f";
        assert_eq!(text(options, Dataset::Wned, input, &[]), "b c [START_ENT] New York [END_ENT] d e");
    }

    #[test]
    fn templates_without_their_fields_are_refused() {
        let wrong = PromptOptions { input: "question".into(), ..PromptOptions::default() };
        assert!(Prompt::new(wrong).unwrap_err().to_string().contains("`{input}`"));
    }
}
