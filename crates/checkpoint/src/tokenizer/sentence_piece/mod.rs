//! Tokenizers from SentencePiece's files (Kudo and Richardson 2018), with the parts that `transformers` 5 puts together for
//! each class.

mod ids;
mod m2m100;
mod marian;
mod model;

use std::{
    collections::HashSet,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};
use tokenizers::{AddedToken, normalizers::Precompiled};

use super::{
    Converted,
    options::{Options, other_class, token},
};
use crate::error::{Error, Result};
use model::{Algorithm, Model, Piece, PieceKind};

/// The classes that are built from SentencePiece's files alone.
pub(super) const CLASSES: [&str; 8] =
    ["T5", "XLMRoberta", "Llama", "MBart", "MBart50", "Pegasus", "Marian", "M2M100"];

/// The names of the files.
const FILES: [&str; 4] = ["spiece.model", "sentencepiece.bpe.model", "tokenizer.model", "tiktoken.model"];

/// The mark of a word's beginning.
const MARK: &str = "\u{2581}";

/// The codes of the languages of mBART, and those that mBART-50 adds.
const LANGUAGES: [&str; 25] = [
    "ar_AR", "cs_CZ", "de_DE", "en_XX", "es_XX", "et_EE", "fi_FI", "fr_XX", "gu_IN", "hi_IN", "it_IT",
    "ja_XX", "kk_KZ", "ko_KR", "lt_LT", "lv_LV", "my_MM", "ne_NP", "nl_XX", "ro_RO", "ru_RU", "si_LK",
    "tr_TR", "vi_VN", "zh_CN",
];
const FURTHER_LANGUAGES: [&str; 27] = [
    "af_ZA", "az_AZ", "bn_IN", "fa_IR", "he_IL", "hr_HR", "id_ID", "ka_GE", "km_KH", "mk_MK", "ml_IN",
    "mn_MN", "mr_IN", "pl_PL", "ps_AF", "pt_XX", "sv_SE", "sw_KE", "ta_IN", "te_IN", "th_TH", "tl_XX",
    "uk_UA", "ur_PK", "xh_ZA", "gl_ES", "sl_SI",
];

/// The most sentinels of a T5, and masks of a Pegasus.
const MOST_SENTINELS: u32 = 10_000;

/// The file of a folder's tokenizer: the one that the class has, or else any other.
pub(super) fn file(folder: &Path, class: &str) -> Option<PathBuf> {
    let own = match class {
        "Marian" => "source.spm",
        "T5" | "Pegasus" => "spiece.model",
        "XLMRoberta" | "MBart" | "MBart50" | "M2M100" => "sentencepiece.bpe.model",
        _ => "tokenizer.model",
    };
    std::iter::once(own).chain(FILES).map(|name| folder.join(name)).find(|path| path.is_file())
}

/// Whether a folder has the files of any class.
pub(super) fn is_in(folder: &Path) -> bool {
    file(folder, "none").is_some() || marian::is_in(folder)
}

/// The text of the `tokenizer.json` that is equivalent to the file `path`, whose content is `bytes`, for a tokenizer of a
/// `class`. A folder that names no class of its own gets a tokenizer by the file's own settings.
///
/// # Errors
/// [`Error::Tokenizer`] where the content is no model, or one of another type than the class has; [`Error::Config`] for
/// another class.
pub(super) fn json(
    folder: &Path,
    path: &Path,
    bytes: &[u8],
    class: &str,
    options: &Options,
) -> Result<Converted> {
    let wrong = |source| Error::Tokenizer { path: path.into(), source };
    let model = Model::read(bytes).map_err(|fault| wrong(fault.into()))?;
    let algorithm = match class {
        "T5" | "XLMRoberta" | "MBart" | "MBart50" | "Pegasus" | "Marian" => Some(Algorithm::Unigram),
        "Llama" => Some(Algorithm::Bpe),
        _ => None,
    };
    if let Some(expected) = algorithm.filter(|expected| *expected != model.algorithm) {
        let problem =
            format!("expected a {expected:?} model for `{class}Tokenizer`, found {:?}", model.algorithm);
        return Err(wrong(problem.into()));
    }
    let rules = rules(&model).map_err(wrong)?;
    let mut unknown = None;
    let built = match class {
        "T5" => t5(folder, &model, rules, options)?,
        "XLMRoberta" => xlm_roberta(&model, rules, options),
        "MBart" => mbart(folder, &model, None, options)?,
        "MBart50" => mbart(folder, &model, Some(rules), options)?,
        "Pegasus" => pegasus(folder, &model, rules, options)?,
        "Marian" => {
            let (parts, beyond) = marian::parts(folder, &model, rules, options)?;
            unknown = Some(beyond);
            parts
        }
        "M2M100" => {
            let (parts, beyond) = m2m100::parts(folder, &model, rules, options)?;
            unknown = Some(beyond);
            parts
        }
        "Llama" => llama(&model, options),
        _ if options.tokenizer_class.is_none() || ["PreTrained", "TokenizersBackend"].contains(&class) => {
            by_its_settings(&model, rules, options).map_err(|problem| wrong(problem.into()))?
        }
        other => {
            return Err(other_class(
                folder,
                "`T5Tokenizer`, `XLMRobertaTokenizer`, `MBartTokenizer`, `MBart50Tokenizer`, `PegasusTokenizer`, \
                 `MarianTokenizer`, `M2M100Tokenizer` or `LlamaTokenizer`",
                other,
            ));
        }
    };
    Ok(Converted { json: built.json().map_err(wrong)?, unknown })
}

/// The parts of a tokenizer. The ids of the vocabulary are the places of its words.
struct Parts {
    vocab: Vec<(String, f64)>,
    /// A BPE's merges; none for a unigram model.
    merges: Option<Vec<(String, String)>>,
    /// The settings of the model besides these.
    settings: Value,
    normalizer: Value,
    pre_tokenizer: Value,
    decoder: Value,
    /// The special tokens around a text and around a pair, by their names and types; `None` is the next text.
    around: [Vec<(Option<String>, u32)>; 2],
    added: Vec<AddedToken>,
}

impl Parts {
    fn id(&self, token: &str) -> Option<usize> {
        // Of a word that stands there twice, the last, as in the reference.
        self.vocab.iter().rposition(|(word, _)| word == token)
    }

    /// The added tokens with their ids; those that the vocabulary lacks come after it.
    fn added(&self) -> Vec<Value> {
        let mut next = self.vocab.len();
        let mut added = Vec::new();
        for token in &self.added {
            let id = self.id(&token.content).unwrap_or_else(|| {
                next += 1;
                next - 1
            });
            added.push(json!({
                "id": id, "content": token.content, "single_word": token.single_word, "lstrip": token.lstrip,
                "rstrip": token.rstrip, "normalized": token.normalized, "special": token.special,
            }));
        }
        added
    }

    fn json(self) -> std::result::Result<String, Failure> {
        let added = self.added();
        let id = |name: &str| {
            let added = added.iter().find(|token| token["content"] == name).map(|token| token["id"].clone());
            let id = added.or_else(|| self.id(name).map(Into::into));
            id.ok_or_else(|| Failure::from(format!("the vocabulary lacks `{name}`")))
        };
        let mut special = serde_json::Map::new();
        let mut templates = Vec::new();
        for template in &self.around {
            let mut names = ["A", "B"].into_iter();
            let mut items = Vec::new();
            for (name, kind) in template {
                items.push(match name {
                    Some(name) => {
                        special.insert(
                            name.clone(),
                            json!({ "id": name, "ids": [id(name)?], "tokens": [name] }),
                        );
                        json!({ "SpecialToken": { "id": name, "type_id": kind } })
                    }
                    None => json!({ "Sequence": { "id": names.next(), "type_id": kind } }),
                });
            }
            templates.push(items);
        }
        let post_processor = (!special.is_empty()).then(|| {
            json!({ "type": "TemplateProcessing", "single": templates[0], "pair": templates[1], "special_tokens": special })
        });
        let mut model = self.settings;
        match self.merges {
            Some(merges) => {
                let words = self.vocab.into_iter().enumerate();
                let vocab: serde_json::Map<_, _> = words.map(|(id, (word, _))| (word, id.into())).collect();
                model["type"] = "BPE".into();
                model["vocab"] = vocab.into();
                model["merges"] = json!(merges);
            }
            None => {
                model["type"] = "Unigram".into();
                model["vocab"] = json!(self.vocab);
            }
        }
        let json = json!({
            "version": "1.0", "truncation": null, "padding": null, "added_tokens": added,
            "normalizer": self.normalizer, "pre_tokenizer": self.pre_tokenizer, "post_processor": post_processor,
            "decoder": self.decoder, "model": model,
        });
        Ok(json.to_string())
    }
}

type Failure = Box<dyn std::error::Error + Send + Sync>;

fn words(pieces: &[Piece]) -> Vec<(String, f64)> {
    pieces.iter().map(|piece| (piece.text.clone(), f64::from(piece.score))).collect()
}

/// The tokens to add: those of the folder and the roles of the class, and where the folder does not list tokens without a
/// role, the file's own and further ones.
fn added(model: &Model, options: &Options, roles: &[&AddedToken], further: &[String]) -> Vec<AddedToken> {
    let roles: Vec<Option<&AddedToken>> = roles.iter().copied().map(Some).collect();
    let mut tokens = options.tokens(&roles);
    if options.lists_further() {
        return tokens;
    }
    let own = model.pieces.iter().filter_map(|piece| match piece.kind {
        PieceKind::Control => Some(AddedToken::from(piece.text.clone(), true)),
        // A text, which the normaliser must not change.
        PieceKind::UserDefined => Some(AddedToken::from(piece.text.clone(), false).normalized(false)),
        _ => None,
    });
    let further = further.iter().map(|token| AddedToken::from(token.clone(), true));
    for token in own.chain(further) {
        if !tokens.iter().any(|known| known.content == token.content) {
            tokens.push(token);
        }
    }
    tokens
}

/// The folder's tokens of roles that the class does not have.
fn other_roles<'a>(options: &'a Options, own: &[&'a AddedToken]) -> Vec<&'a AddedToken> {
    let all = [
        &options.bos_token,
        &options.eos_token,
        &options.unk_token,
        &options.sep_token,
        &options.pad_token,
        &options.cls_token,
        &options.mask_token,
    ];
    let others = all.into_iter().flatten().map(|token| &token.0);
    own.iter().copied().chain(others).collect()
}

/// The rules of the model's normaliser.
fn rules(model: &Model) -> std::result::Result<Value, Failure> {
    if model.charsmap.is_empty() {
        return Ok(Value::Null);
    }
    Ok(json!(Precompiled::from(&model.charsmap)?))
}

/// Words between spaces, each with the mark before it.
fn marked_words(scheme: &str) -> Value {
    let mark = metaspace(scheme, true);
    json!({ "type": "Sequence", "pretokenizers": [{ "type": "WhitespaceSplit" }, mark] })
}

fn metaspace(scheme: &str, split: bool) -> Value {
    json!({ "type": "Metaspace", "replacement": MARK, "prepend_scheme": scheme, "split": split })
}

/// A special token by its name, in the part of the first text.
fn special(name: &str) -> (Option<String>, u32) {
    (Some(name.to_owned()), 0)
}

/// Refuses more sentinels than memory may hold.
fn check_sentinels(folder: &Path, key: &str, count: u32) -> Result<()> {
    if count <= MOST_SENTINELS {
        return Ok(());
    }
    Err(Error::Config {
        path: folder.join(super::options::CONFIG),
        field: key.into(),
        expected: format!("at most {MOST_SENTINELS}"),
        found: count.to_string(),
    })
}

/// T5 (Raffel et al. 2020): the pieces, and after them the sentinels, the last first.
fn t5(folder: &Path, model: &Model, rules: Value, options: &Options) -> Result<Parts> {
    let count = options.extra_ids.unwrap_or(100);
    check_sentinels(folder, "extra_ids", count)?;
    let sentinels: Vec<String> = (0..count).map(|number| format!("<extra_id_{number}>")).collect();
    let mut vocab = words(&model.pieces);
    vocab.extend(sentinels.iter().rev().map(|sentinel| (sentinel.clone(), 0.0)));
    let roles = [
        token(&options.eos_token, "</s>"),
        token(&options.unk_token, "<unk>"),
        token(&options.pad_token, "<pad>"),
    ];
    let end = special("</s>");
    let text = (None, 0);
    Ok(Parts {
        vocab,
        merges: None,
        settings: json!({ "unk_id": 2, "byte_fallback": false }),
        normalizer: rules,
        pre_tokenizer: marked_words("always"),
        decoder: metaspace("always", true),
        around: [vec![text.clone(), end.clone()], vec![text.clone(), end.clone(), text, end]],
        added: added(model, options, &other_roles(options, &roles.each_ref()), &sentinels),
    })
}

/// XLM-RoBERTa (Conneau et al. 2020): fairseq's four tokens stand for the file's first three, and a mask comes last.
fn xlm_roberta(model: &Model, rules: Value, options: &Options) -> Parts {
    let roles = [
        token(&options.bos_token, "<s>"),
        token(&options.pad_token, "<pad>"),
        token(&options.eos_token, "</s>"),
        token(&options.unk_token, "<unk>"),
        token(&options.sep_token, "</s>"),
        token(&options.cls_token, "<s>"),
        token(&options.mask_token, "<mask>"),
    ];
    let [begin, _, end, .., mask] = &roles;
    let mut vocab: Vec<(String, f64)> = roles[..4].iter().map(|token| (token.content.clone(), 0.0)).collect();
    vocab.extend(words(model.pieces.get(3..).unwrap_or_default()));
    vocab.push((mask.content.clone(), 0.0));
    let scheme = if options.add_prefix_space.unwrap_or(true) { "always" } else { "never" };
    let (begin, end, text) = (special(&begin.content), special(&end.content), (None, 0));
    let single = vec![begin, text.clone(), end.clone()];
    let pair = [single.clone(), vec![end.clone(), text, end]].concat();
    Parts {
        vocab,
        merges: None,
        settings: json!({ "unk_id": 3, "byte_fallback": false }),
        normalizer: rules,
        pre_tokenizer: marked_words(scheme),
        decoder: metaspace(scheme, true),
        around: [single, pair],
        added: added(model, options, &roles.each_ref(), &[]),
    }
}

/// mBART (Liu et al. 2020): fairseq's four tokens, the file's pieces from the fourth on, the codes of languages, and a mask.
/// The code of the input's language comes last, and without normalisation. With `rules` it is mBART-50 (Tang et al. 2020), which
/// has more languages, and the code first.
fn mbart(folder: &Path, model: &Model, rules: Option<Value>, options: &Options) -> Result<Parts> {
    let roles = [
        token(&options.bos_token, "<s>"),
        token(&options.pad_token, "<pad>"),
        token(&options.eos_token, "</s>"),
        token(&options.unk_token, "<unk>"),
        token(&options.sep_token, "</s>"),
        token(&options.cls_token, "<s>"),
        options
            .mask_token
            .as_ref()
            .map_or_else(|| AddedToken::from("<mask>", true).lstrip(true), |own| own.0.clone()),
    ];
    let further = if rules.is_some() { &FURTHER_LANGUAGES[..] } else { &[] };
    let languages: Vec<&str> = LANGUAGES.iter().chain(further).copied().collect();
    let source = options.src_lang.as_deref().unwrap_or("en_XX");
    if !languages.contains(&source) {
        return Err(Error::Config {
            path: folder.join(super::options::CONFIG),
            field: "src_lang".into(),
            expected: format!("one of the codes {}", languages.join(", ")),
            found: format!("`{source}`"),
        });
    }
    let mut vocab: Vec<(String, f64)> = roles[..4].iter().map(|token| (token.content.clone(), 0.0)).collect();
    vocab.extend(words(model.pieces.get(3..).unwrap_or_default()));
    vocab.extend(languages.iter().map(|code| ((*code).to_owned(), 0.0)));
    vocab.push((roles[6].content.clone(), 0.0));
    let mut added = added(model, options, &roles.each_ref(), &[]);
    for code in languages {
        if !added.iter().any(|token| token.content == code) {
            added.push(AddedToken::from(code, true));
        }
    }
    let (source, end, text) = (special(source), special(&roles[2].content), (None, 0));
    let around = |texts: usize| {
        let texts = vec![text.clone(); texts];
        match rules {
            Some(_) => [vec![source.clone()], texts, vec![end.clone()]].concat(),
            None => [texts, vec![end.clone(), source.clone()]].concat(),
        }
    };
    let around = [around(1), around(2)];
    let (normalizer, pre_tokenizer) = match rules {
        Some(rules) => (sequence(rules, &[replace_regex(" {2,}", " ")]), metaspace("always", true)),
        None => (Value::Null, marked_words("always")),
    };
    Ok(Parts {
        vocab,
        merges: None,
        settings: json!({ "unk_id": 3, "byte_fallback": false }),
        normalizer,
        pre_tokenizer,
        decoder: metaspace("always", true),
        around,
        added,
    })
}

/// The rules, if there are some, and further steps of a normaliser.
fn sequence(rules: Value, further: &[Value]) -> Value {
    let first = (!rules.is_null()).then_some(rules);
    let steps: Vec<Value> = first.into_iter().chain(further.iter().cloned()).collect();
    json!({ "type": "Sequence", "normalizers": steps })
}

/// Pegasus (Zhang et al. 2020): padding, the end, two masks and the tokens of pre-training come before the file's pieces, of
/// which the first two are left out.
fn pegasus(folder: &Path, model: &Model, rules: Value, options: &Options) -> Result<Parts> {
    let offset = options.offset.unwrap_or(103);
    check_sentinels(folder, "offset", offset)?;
    let roles = [
        token(&options.pad_token, "<pad>"),
        token(&options.eos_token, "</s>"),
        token(&options.unk_token, "<unk>"),
        token(&options.mask_token, "<mask_2>"),
        token(&options.mask_token_sent, "<mask_1>"),
    ];
    let unused: Vec<String> = (2..offset).map(|number| format!("<unk_{number}>")).collect();
    // The vocabulary has the other mask first where the folder names none, as in the reference.
    let (first, second) =
        (token(&options.mask_token, "<mask_1>"), token(&options.mask_token_sent, "<mask_2>"));
    let mut vocab: Vec<(String, f64)> =
        [&roles[0], &roles[1], &first].iter().map(|token| (token.content.clone(), 0.0)).collect();
    if second.content != first.content {
        vocab.push((second.content, 0.0));
    }
    vocab.extend(unused.iter().map(|token| (token.clone(), -100.0)));
    vocab.extend(words(model.pieces.get(2..).unwrap_or_default()));
    let unknown = &roles[2].content;
    let unk_id =
        vocab.iter().skip(1).position(|(word, score)| word == unknown && *score == 0.0).map(|at| at + 1);
    let mut added = added(model, options, &roles.each_ref(), &unused);
    for name in unused {
        if !added.iter().any(|token| token.content == name) {
            added.push(AddedToken::from(name, true));
        }
    }
    let blanks = replace_regex(" {2,}", " ");
    let normalizer = match rules.is_null() {
        true => sequence(rules, &[replace_regex(r"\n", " "), blanks]),
        false => sequence(rules, &[blanks]),
    };
    let (end, text) = (special(&roles[1].content), (None, 0));
    Ok(Parts {
        vocab,
        merges: None,
        settings: json!({ "unk_id": unk_id, "byte_fallback": false }),
        normalizer,
        pre_tokenizer: metaspace("always", true),
        decoder: metaspace("always", true),
        around: [vec![text.clone(), end.clone()], vec![text.clone(), text, end]],
        added,
    })
}

/// The special tokens around a text and a pair, as the folder's config sets them.
fn begin_and_end(
    options: &Options,
    begin: Option<&str>,
    end: Option<&str>,
) -> [Vec<(Option<String>, u32)>; 2] {
    let begin = begin.filter(|_| options.add_bos_token == Some(true));
    let end = end.filter(|_| options.add_eos_token == Some(true));
    let around = |kind| {
        let token = |name: &str| (Some(name.to_owned()), kind);
        begin.map(token).into_iter().chain([(None, kind)]).chain(end.map(token))
    };
    [around(0).collect(), around(0).chain(around(1)).collect()]
}

/// LLaMA (Touvron et al. 2023): BPE whose merges are ranked by the ids of the pieces that they make, with bytes for unknown
/// characters. With `legacy` each text between special tokens gets the mark, and without it the first text.
fn llama(model: &Model, options: &Options) -> Parts {
    let roles = [
        token(&options.unk_token, "<unk>"),
        token(&options.bos_token, "<s>"),
        token(&options.eos_token, "</s>"),
    ];
    let marks = options.add_prefix_space.unwrap_or(true);
    let scheme = match (marks, options.legacy.unwrap_or(false)) {
        (true, true) => "always",
        (true, false) => "first",
        (false, _) => "never",
    };
    let mut decoders = vec![replace(MARK, " "), json!({ "type": "ByteFallback" }), json!({ "type": "Fuse" })];
    if marks {
        decoders.push(json!({ "type": "Strip", "content": " ", "start": 1, "stop": 0 }));
    }
    let pieces: HashSet<&str> = model.pieces.iter().map(|piece| piece.text.as_str()).collect();
    let known = |piece: &str| pieces.contains(piece);
    let merges = model.pieces.iter().flat_map(|piece| splits(&piece.text, known)).collect();
    Parts {
        vocab: words(&model.pieces),
        merges: Some(merges),
        settings: bpe(None, true, false),
        normalizer: Value::Null,
        pre_tokenizer: metaspace(scheme, false),
        decoder: json!({ "type": "Sequence", "decoders": decoders }),
        around: begin_and_end(options, Some(&roles[1].content), Some(&roles[2].content)),
        added: added(model, options, &other_roles(options, &roles.each_ref()), &[]),
    }
}

fn bpe(unknown: Option<&str>, byte_fallback: bool, ignore_merges: bool) -> Value {
    json!({
        "dropout": null, "unk_token": unknown, "continuing_subword_prefix": null, "end_of_word_suffix": null,
        "fuse_unk": true, "byte_fallback": byte_fallback, "ignore_merges": ignore_merges,
    })
}

fn replace(from: &str, to: &str) -> Value {
    json!({ "type": "Replace", "pattern": { "String": from }, "content": to })
}

fn replace_regex(from: &str, to: &str) -> Value {
    json!({ "type": "Replace", "pattern": { "Regex": from }, "content": to })
}

/// The ways to split `piece` into two known pieces, the shortest beginning first.
fn splits(piece: &str, known: impl Fn(&str) -> bool) -> Vec<(String, String)> {
    let places = piece.char_indices().skip(1).map(|(at, _)| piece.split_at(at));
    places.filter(|(left, right)| known(left) && known(right)).map(|(l, r)| (l.into(), r.into())).collect()
}

/// A tokenizer of no class of its own, by the settings of the file.
fn by_its_settings(model: &Model, rules: Value, options: &Options) -> std::result::Result<Parts, String> {
    if model.whitespace_is_suffix {
        return Err("expected marks of words before them, found `treat_whitespace_as_suffix`".into());
    }
    let mut vocab = words(&model.pieces);
    // The folder may give pieces other names, unless one of these is that of another piece that keeps its own.
    if model.algorithm == Algorithm::Bpe {
        let kept: HashSet<&str> = (0u32..)
            .zip(&model.pieces)
            .filter(|(id, _)| !options.added.contains_key(id))
            .map(|(_, piece)| piece.text.as_str())
            .collect();
        for (id, (word, _)) in (0u32..).zip(&mut vocab) {
            if let Some(token) = options.added.get(&id).filter(|token| !kept.contains(token.content.as_str()))
            {
                word.clone_from(&token.content);
            }
        }
    }
    let user_defined: Vec<&str> = std::iter::zip(&model.pieces, &vocab)
        .filter(|(piece, _)| piece.kind == PieceKind::UserDefined)
        .map(|(_, (word, _))| word.as_str())
        .collect();
    let (merges, settings) = match model.algorithm {
        Algorithm::Unigram => {
            (None, json!({ "unk_id": model.unknown, "byte_fallback": model.byte_fallback }))
        }
        Algorithm::Bpe => {
            let settings = bpe(Some(&model.unknown_piece), model.byte_fallback, !user_defined.is_empty());
            (Some(by_score(model, &vocab)), settings)
        }
    };
    let mut normalizers = Vec::new();
    if !rules.is_null() {
        normalizers.push(rules);
    }
    if model.remove_extra_whitespaces {
        normalizers.extend([replace_regex(r"\A +| +\z", ""), replace_regex(" {2,}", " ")]);
    }
    if model.escape_whitespaces {
        normalizers.push(replace(" ", MARK));
    }
    let legacy = options.legacy.unwrap_or(true);
    if model.add_dummy_prefix && legacy {
        // A text that begins with a mark gets another, which the next step would leave out.
        normalizers.push(replace_regex("\\A\u{2581}", "\u{2581}\u{2581}"));
    }
    let mut pre_tokenizers = Vec::new();
    if model.add_dummy_prefix {
        pre_tokenizers.push(metaspace(if legacy { "always" } else { "first" }, false));
    }
    if !user_defined.is_empty() {
        let mut longest = user_defined.clone();
        longest.sort_by_key(|piece| std::cmp::Reverse(piece.chars().count()));
        let pattern = longest.iter().map(|piece| regex::escape(piece)).collect::<Vec<_>>().join("|");
        pre_tokenizers.push(
            json!({ "type": "Split", "pattern": { "Regex": pattern }, "behavior": "Isolated", "invert": false }),
        );
    }
    let mut decoders = vec![replace(MARK, " ")];
    if model.byte_fallback {
        decoders.push(json!({ "type": "ByteFallback" }));
    }
    if model.add_dummy_prefix || model.byte_fallback {
        decoders.push(json!({ "type": "Fuse" }));
    }
    if model.add_dummy_prefix {
        decoders.push(json!({ "type": "Strip", "content": " ", "start": 1, "stop": 0 }));
    }
    let role = |own: &Option<super::options::Token>, id: i32, piece: &str| match own {
        Some(token) => Some(token.0.clone()),
        None => (id >= 0).then(|| AddedToken::from(piece.to_owned(), true)),
    };
    let begin = role(&options.bos_token, model.begin, &model.begin_piece);
    let end = role(&options.eos_token, model.end, &model.end_piece);
    let unknown = role(&options.unk_token, model.unknown, &model.unknown_piece);
    let roles: Vec<&AddedToken> = [&begin, &end, &unknown].into_iter().flatten().collect();
    let mut added = added(model, options, &other_roles(options, &roles), &[]);
    // The step before the model keeps them whole, with the mark before them.
    let isolated: HashSet<&str> = user_defined.iter().copied().collect();
    added.retain(|token| {
        let is_named = options.added.values().any(|named| named.content == token.content);
        is_named || !isolated.contains(token.content.as_str())
    });
    if model.add_dummy_prefix {
        // They are found in the text as it is, so that each text between them gets a mark.
        for token in &mut added {
            token.normalized = false;
        }
    }
    let around = begin_and_end(
        options,
        begin.as_ref().map(|token| token.content.as_str()),
        end.as_ref().map(|token| token.content.as_str()),
    );
    Ok(Parts {
        merges,
        settings,
        normalizer: json!({ "type": "Sequence", "normalizers": normalizers }),
        pre_tokenizer: match pre_tokenizers.is_empty() {
            true => Value::Null,
            false => json!({ "type": "Sequence", "pretokenizers": pre_tokenizers }),
        },
        decoder: json!({ "type": "Sequence", "decoders": decoders }),
        around,
        added,
        vocab,
    })
}

/// The merges of normal pieces, the pieces of the best scores first, as SentencePiece ranks them.
fn by_score(model: &Model, vocab: &[(String, f64)]) -> Vec<(String, String)> {
    let is_normal = |(_, piece): &(usize, &Piece)| piece.kind == PieceKind::Normal;
    let normal = model.pieces.iter().enumerate().filter(is_normal);
    let known: HashSet<&str> = normal.clone().map(|(id, _)| vocab[id].0.as_str()).collect();
    let mut pieces: Vec<(usize, &Piece)> = normal.collect();
    pieces.sort_by(|a, b| b.1.score.total_cmp(&a.1.score).then(a.0.cmp(&b.0)));
    let mut merges = Vec::new();
    for (id, _) in pieces {
        let mut ways = splits(&vocab[id].0, |piece| known.contains(piece));
        // In the order of the code points of their beginnings.
        ways.sort();
        merges.extend(ways);
    }
    merges
}
