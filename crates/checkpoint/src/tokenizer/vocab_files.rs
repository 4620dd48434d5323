//! Tokenizers of folders without a `tokenizer.json`: `vocab.txt` as BERT has it, `vocab.json` with `merges.txt` as GPT-2,
//! RoBERTa, BART, both Blenderbots and Qwen 2 have them, and files of SentencePiece and tiktoken. The parts are those that `transformers` puts together for these classes.

use std::path::Path;

use tokenizers::{
    AddedToken, SplitDelimiterBehavior, TokenizerImpl,
    decoders::{byte_level::ByteLevel as ByteLevelDecoder, wordpiece::WordPiece as WordPieceDecoder},
    models::{bpe::BPE, wordpiece::WordPiece},
    normalizers::{BertNormalizer, NFC},
    pre_tokenizers::{
        bert::BertPreTokenizer,
        byte_level::ByteLevel,
        sequence::Sequence,
        split::{Split, SplitPattern},
    },
    processors::{roberta::RobertaProcessing, template::TemplateProcessing},
};

use super::{
    Converted, MERGES, PIECES, blenderbot_small, bounds, byte_pattern,
    options::{Options, class, other_class, token},
    sentence_piece, tiktoken,
};
use crate::{
    error::{Error, Result},
    json,
};

const WORDS: &str = "vocab.txt";

/// Whether a folder has the files of a vocabulary.
pub(super) fn are_in(folder: &Path) -> bool {
    folder.join(WORDS).is_file() || has_pieces(folder) || sentence_piece::is_in(folder)
}

fn has_pieces(folder: &Path) -> bool {
    [PIECES, MERGES].iter().all(|file| folder.join(file).is_file())
}

/// The classes whose `vocab.txt` is BERT's. A trained tokenizer without its `tokenizer.json` is taken for one.
const WORD_PIECES: [&str; 14] = [
    "Bert",
    "DistilBert",
    "Electra",
    "MobileBert",
    "ConvBert",
    "SqueezeBert",
    "LayoutLM",
    "Lxmert",
    "Retribert",
    "DPRQuestionEncoder",
    "DPRContextEncoder",
    "DPRReader",
    "PreTrained",
    "TokenizersBackend",
];

/// The text of the `tokenizer.json` that is equivalent to the vocabulary files of `folder`.
///
/// # Errors
/// [`Error::MissingFile`] where the vocabulary is missing, [`Error::Json`], [`Error::Config`] where the folder does
/// not say which kind of tokenizer its files are for, or names one that needs more than files, and [`Error::Tokenizer`].
pub(super) fn json(folder: &Path) -> Result<Converted> {
    let options = Options::read(folder)?;
    let class = class(folder, &options)?;
    // The readers of `tokenizers` do not report the position of invalid text.
    for file in [WORDS, PIECES, MERGES] {
        json::text(&folder.join(file))?;
    }
    let has_others = folder.join(WORDS).exists() || has_pieces(folder);
    if let Some(path) = sentence_piece::file(folder, &class)
        && (!has_others || sentence_piece::CLASSES.contains(&class.as_str()))
    {
        let bytes = std::fs::read(&path).map_err(Error::io(&path, "read"))?;
        crate::pointer::check(&path, &bytes)?;
        return match tiktoken::is_one(&bytes) {
            true => tiktoken::json(folder, &path, &bytes, &class, &options).map(Converted::from),
            false => sentence_piece::json(folder, &path, &bytes, &class, &options),
        };
    }
    if folder.join(WORDS).exists() {
        // Without a tokenizer's config the model's type stands here, and any such model has BERT's vocabulary.
        if options.tokenizer_class.is_some() && !WORD_PIECES.contains(&class.as_str()) {
            return Err(other_class(
                folder,
                "a class of BERT's vocabularies, such as `BertTokenizer`",
                &class,
            ));
        }
        return word_pieces(folder, &options).map(Converted::from);
    }
    if !has_pieces(folder) {
        let expected = "tokenizer.json, vocab.txt, or vocab.json with merges.txt, or spiece.model, \
                        sentencepiece.bpe.model, tokenizer.model or tiktoken.model, or source.spm with vocab.json";
        return Err(Error::MissingFile { folder: folder.into(), expected });
    }
    if class == "BlenderbotSmall" {
        return blenderbot_small::json(folder, &options);
    }
    let json = match class.as_str() {
        "GPT2" => gpt2(folder, &options),
        "Qwen2" => qwen2(folder, &options),
        "Roberta" | "Bart" | "Longformer" | "LED" | "Luke" | "Mvp" => roberta(folder, &options),
        "Blenderbot" => blenderbot(folder, &options),
        other => Err(other_class(
            folder,
            "`GPT2Tokenizer`, `RobertaTokenizer`, `BartTokenizer`, `BlenderbotTokenizer`, `BlenderbotSmallTokenizer` or \
             `Qwen2Tokenizer`",
            other,
        )),
    };
    json.map(Converted::from)
}

type Tokenizer<M, N, P, S, D> = TokenizerImpl<M, N, P, S, D>;
type Failure = Box<dyn std::error::Error + Send + Sync>;

fn word_pieces(folder: &Path, options: &Options) -> Result<String> {
    let path = folder.join(WORDS);
    let build = || -> std::result::Result<String, Failure> {
        let names = [
            token(&options.unk_token, "[UNK]"),
            token(&options.sep_token, "[SEP]"),
            token(&options.pad_token, "[PAD]"),
            token(&options.cls_token, "[CLS]"),
            token(&options.mask_token, "[MASK]"),
        ];
        let [unknown, separator, padding, class, mask] = &names;
        let vocabulary = WordPiece::read_file(&path.to_string_lossy())?;
        let model = WordPiece::builder().vocab(vocabulary).unk_token(unknown.content.clone()).build()?;
        let mut tokenizer: Tokenizer<
            _,
            BertNormalizer,
            BertPreTokenizer,
            TemplateProcessing,
            WordPieceDecoder,
        > = Tokenizer::new(model);
        tokenizer.with_normalizer(Some(BertNormalizer::new(
            true,
            options.tokenize_chinese_chars.unwrap_or(true),
            options.strip_accents,
            options.do_lower_case.unwrap_or(true),
        )))?;
        tokenizer.with_pre_tokenizer(Some(BertPreTokenizer));
        tokenizer.with_decoder(Some(WordPieceDecoder::new("##".into(), true)));
        let (bos, eos) = (options.bos_token.as_ref(), options.eos_token.as_ref());
        let special = [
            bos.map(|token| &token.0),
            eos.map(|token| &token.0),
            Some(unknown),
            Some(separator),
            Some(padding),
            Some(class),
            Some(mask),
        ];
        tokenizer.add_tokens(options.tokens(&special))?;
        let id = |token: &AddedToken| {
            let id = tokenizer.token_to_id(&token.content);
            id.ok_or_else(|| Failure::from(format!("the vocabulary lacks `{}`", token.content)))
        };
        let (cls, sep) = (class.content.clone(), separator.content.clone());
        let processor = TemplateProcessing::builder()
            .try_single(format!("{cls}:0 $A:0 {sep}:0"))?
            .try_pair(format!("{cls}:0 $A:0 {sep}:0 $B:1 {sep}:1"))?
            .special_tokens(vec![(cls.clone(), id(class)?), (sep.clone(), id(separator)?)])
            .build()?;
        tokenizer.with_post_processor(Some(processor));
        tokenizer.to_string(false)
    };
    build().map_err(|source| Error::Tokenizer { path: path.clone(), source })
}

fn byte_pairs(folder: &Path) -> std::result::Result<BPE, Failure> {
    let (pieces, merges) = (folder.join(PIECES), folder.join(MERGES));
    let (vocabulary, merges) = BPE::read_file(&pieces.to_string_lossy(), &merges.to_string_lossy())?;
    bounds::check_ids(vocabulary.values().copied())?;
    let bpe = BPE::builder().vocab_and_merges(vocabulary, merges);
    bpe.continuing_subword_prefix(String::new()).end_of_word_suffix(String::new()).build()
}

fn roberta(folder: &Path, options: &Options) -> Result<String> {
    let build = || -> std::result::Result<String, Failure> {
        let names = [
            token(&options.bos_token, "<s>"),
            token(&options.eos_token, "</s>"),
            token(&options.unk_token, "<unk>"),
            token(&options.sep_token, "</s>"),
            token(&options.pad_token, "<pad>"),
            token(&options.cls_token, "<s>"),
            token(&options.mask_token, "<mask>"),
        ];
        let prefix = options.add_prefix_space.unwrap_or(false);
        let mut tokenizer: Tokenizer<_, BertNormalizer, ByteLevel, RobertaProcessing, ByteLevelDecoder> =
            Tokenizer::new(byte_pairs(folder)?);
        tokenizer.with_pre_tokenizer(Some(ByteLevel::new(prefix, true, true)));
        tokenizer.with_decoder(Some(ByteLevelDecoder::default()));
        tokenizer.add_tokens(options.tokens(&names.each_ref().map(Some)))?;
        let pair = |token: &AddedToken| {
            let id = tokenizer.token_to_id(&token.content);
            let id = id.ok_or_else(|| Failure::from(format!("the vocabulary lacks `{}`", token.content)))?;
            Ok::<_, Failure>((token.content.clone(), id))
        };
        let processor = RobertaProcessing::new(pair(&names[3])?, pair(&names[5])?);
        let processor = processor.trim_offsets(options.trim_offsets.unwrap_or(true)).add_prefix_space(prefix);
        tokenizer.with_post_processor(Some(processor));
        tokenizer.to_string(false)
    };
    build().map_err(|source| Error::Tokenizer { path: folder.join(PIECES), source })
}

/// RoBERTa's splitting of texts, with a space before each. Special tokens are around a text where the folder asks for them.
fn blenderbot(folder: &Path, options: &Options) -> Result<String> {
    let build = || -> std::result::Result<String, Failure> {
        let mask = options.mask_token.as_ref();
        let names = [
            token(&options.bos_token, "<s>"),
            token(&options.eos_token, "</s>"),
            token(&options.unk_token, "<unk>"),
            token(&options.sep_token, "</s>"),
            token(&options.pad_token, "<pad>"),
            token(&options.cls_token, "<s>"),
            mask.map_or_else(|| AddedToken::from("<mask>", true).lstrip(true), |own| own.0.clone()),
        ];
        let mut tokenizer: Tokenizer<_, BertNormalizer, ByteLevel, TemplateProcessing, ByteLevelDecoder> =
            Tokenizer::new(byte_pairs(folder)?);
        let prefix = options.add_prefix_space.unwrap_or(true);
        tokenizer.with_pre_tokenizer(Some(ByteLevel::new(prefix, true, true)));
        tokenizer.with_decoder(Some(ByteLevelDecoder::default()));
        tokenizer.add_tokens(options.tokens(&names.each_ref().map(Some)))?;
        let around = [(options.add_bos_token, &names[0]), (options.add_eos_token, &names[1])];
        let [begin, end] = around.map(|(adds, token)| (adds == Some(true)).then_some(token));
        let part = |text: &str, kind: u32| {
            let token = |token: &AddedToken| format!("{}:{kind}", token.content);
            let parts = [begin.map(token), Some(format!("{text}:{kind}")), end.map(token)];
            parts.into_iter().flatten().collect::<Vec<_>>().join(" ")
        };
        let mut special = Vec::new();
        for token in begin.into_iter().chain(end) {
            let id = tokenizer.token_to_id(&token.content);
            let id = id.ok_or_else(|| Failure::from(format!("the vocabulary lacks `{}`", token.content)))?;
            special.push((token.content.clone(), id));
        }
        if !special.is_empty() {
            let processor = TemplateProcessing::builder()
                .try_single(part("$A", 0))?
                .try_pair(format!("{} {}", part("$A", 0), part("$B", 1)))?
                .special_tokens(special)
                .build()?;
            tokenizer.with_post_processor(Some(processor));
        }
        tokenizer.to_string(false)
    };
    build().map_err(|source| Error::Tokenizer { path: folder.join(PIECES), source })
}

fn qwen2(folder: &Path, options: &Options) -> Result<String> {
    const END: &str = "<|endoftext|>";
    let path = folder.join(PIECES);
    let build = || -> std::result::Result<String, Failure> {
        let names = [&options.eos_token, &options.unk_token, &options.pad_token].map(|own| token(own, END));
        let bos = options.bos_token.as_ref().map(|token| &token.0);
        let [eos, unknown, padding] = &names;
        let split =
            Split::new(SplitPattern::Regex(byte_pattern(r"\p{N}")), SplitDelimiterBehavior::Isolated, false)?;
        let bytes = ByteLevel::new(options.add_prefix_space.unwrap_or(false), true, false);
        let mut tokenizer: Tokenizer<_, NFC, Sequence, TemplateProcessing, ByteLevelDecoder> =
            Tokenizer::new(byte_pairs(folder)?);
        tokenizer.with_normalizer(Some(NFC))?;
        tokenizer.with_pre_tokenizer(Some(Sequence::new(vec![split.into(), bytes.into()])));
        tokenizer.with_decoder(Some(ByteLevelDecoder::default()));
        tokenizer.add_tokens(options.tokens(&[bos, Some(eos), Some(unknown), Some(padding)]))?;
        tokenizer.to_string(false)
    };
    build().map_err(|source| Error::Tokenizer { path: path.clone(), source })
}

fn gpt2(folder: &Path, options: &Options) -> Result<String> {
    const END: &str = "<|endoftext|>";
    let build = || -> std::result::Result<String, Failure> {
        let bos = token(&options.bos_token, END);
        let (eos, unknown) = (token(&options.eos_token, END), token(&options.unk_token, END));
        let mut tokenizer: Tokenizer<_, BertNormalizer, ByteLevel, TemplateProcessing, ByteLevelDecoder> =
            Tokenizer::new(byte_pairs(folder)?);
        let prefix = options.add_prefix_space.unwrap_or(false);
        tokenizer.with_pre_tokenizer(Some(ByteLevel::new(prefix, true, true)));
        tokenizer.with_decoder(Some(ByteLevelDecoder::default()));
        let others = [&options.sep_token, &options.pad_token, &options.cls_token, &options.mask_token];
        let others = others.map(|token| token.as_ref().map(|token| &token.0));
        let special: Vec<_> = [Some(&bos), Some(&eos), Some(&unknown)].into_iter().chain(others).collect();
        tokenizer.add_tokens(options.tokens(&special))?;
        if options.add_bos_token == Some(true) {
            let id = tokenizer.token_to_id(&bos.content);
            let id = id.ok_or_else(|| Failure::from(format!("the vocabulary lacks `{}`", bos.content)))?;
            let processor = TemplateProcessing::builder()
                .try_single(format!("{}:0 $A:0", bos.content))?
                .try_pair(format!("{0}:0 $A:0 {0}:1 $B:1", bos.content))?
                .special_tokens(vec![(bos.content.clone(), id)])
                .build()?;
            tokenizer.with_post_processor(Some(processor));
        }
        tokenizer.to_string(false)
    };
    build().map_err(|source| Error::Tokenizer { path: folder.join(PIECES), source })
}
