//! How many arguments of KnowledgeNet's facts the mentions and chains cover, and how fast they are found.
//!
//! cargo run --release --example mentions_run -- TAGGER FILE FOLD..
//!
//! For the facts' subjects and objects in the folds: the share that matches a mention exactly or overlaps
//! one. For the pronouns and short names whose entity has a full name elsewhere in the document: the share
//! whose chain contains a name of that entity.

use std::{collections::BTreeMap, path::Path, process::ExitCode, time::Instant};

use sporran_extractor::{
    Coreference, Document, MentionFinder, MentionForm, Span,
    coreference::Rules,
    is_pronoun,
    tagger::{Computing, Tagger},
};
use sporran_kilt::knowledgenet;

type Error = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments) {
        Ok(report) => {
            use std::io::Write;
            let written = std::io::stdout().write_all(report.as_bytes());
            if written.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => {
            tell(&*error);
            ExitCode::from(2)
        }
    }
}

fn tell(error: &dyn std::error::Error) {
    use std::io::Write;
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(&format!(": {cause}"));
        source = cause.source();
    }
    // If standard error is closed, the message has no reader.
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Counts of one kind of span.
#[derive(Default)]
struct Count {
    all: usize,
    exact: usize,
    overlap: usize,
    /// Those whose entity has a name elsewhere.
    linked: usize,
    chained: usize,
    /// Those in a chain with any name.
    named: usize,
}

fn run(arguments: &[String]) -> Result<String, Error> {
    let [tagger, file, folds @ ..] = arguments else {
        return Err("expected TAGGER FILE FOLD..".into());
    };
    let folds: Vec<i64> = folds.iter().map(|fold| fold.parse()).collect::<Result<_, _>>()?;
    let tagger = Tagger::open(Path::new(tagger), Computing::default())?;
    let records: Vec<_> =
        knowledgenet::load(file)?.into_iter().filter(|record| folds.contains(&record.fold)).collect();
    let documents: Vec<Document> =
        records.iter().map(|record| Document::new(record.id.to_string(), record.text.clone())).collect();
    let sentences: usize = documents.iter().map(|document| document.sentences.len()).sum();
    let began = Instant::now();
    let mentions = tagger.mentions(&documents)?;
    let seconds = began.elapsed().as_secs_f64();
    let began = Instant::now();
    let chains = documents
        .iter()
        .zip(&mentions)
        .map(|(document, mentions)| Rules.chains(document, mentions))
        .collect::<Result<Vec<_>, _>>()?;
    let chain_seconds = began.elapsed().as_secs_f64();
    let mut counts: BTreeMap<String, Count> = BTreeMap::new();
    for (((record, document), mentions), chains) in records.iter().zip(&documents).zip(&mentions).zip(&chains)
    {
        // Each place of the facts once, with its link.
        let mut places: BTreeMap<Span, Option<String>> = BTreeMap::new();
        for fact in record.passages.iter().flat_map(|passage| &passage.facts) {
            for (start, end, uri) in [
                (fact.subject_start, fact.subject_end, &fact.subject_uri),
                (fact.object_start, fact.object_end, &fact.object_uri),
            ] {
                let uri = uri.clone().filter(|uri| !uri.is_empty());
                places
                    .entry(Span { start, end })
                    .and_modify(|old| *old = old.take().or(uri.clone()))
                    .or_insert(uri);
            }
        }
        let text = |span: Span| document.slice(span).unwrap_or_default();
        for (span, uri) in &places {
            let own = text(*span);
            let is_short = |name: &str| name.split_whitespace().count() == 1;
            let group = if is_pronoun(own) {
                own.to_lowercase()
            } else if is_short(own) {
                "short names".to_owned()
            } else {
                "long names".to_owned()
            };
            let exact = mentions.iter().position(|mention| mention.span == *span);
            let count = counts.entry(group).or_default();
            count.all += 1;
            count.exact += usize::from(exact.is_some());
            count.overlap += usize::from(mentions.iter().any(|mention| mention.span.overlaps(*span)));
            let chain = exact.and_then(|at| chains.iter().find(|c| c.mentions.iter().any(|(m, _)| *m == at)));
            let is_name = |at: usize| mentions[at].form == MentionForm::Name;
            count.named += usize::from(chain.is_some_and(|c| c.mentions.iter().any(|(m, _)| is_name(*m))));
            let Some(uri) = uri else { continue };
            // Names of the same entity elsewhere, longer than this one.
            let others: Vec<Span> = places
                .iter()
                .filter(|(other, link)| *other != span && link.as_ref() == Some(uri))
                .map(|(other, _)| *other)
                .filter(|other| !is_pronoun(text(*other)) && text(*other).len() > own.len())
                .collect();
            if others.is_empty() {
                continue;
            }
            count.linked += 1;
            let holds = chain.is_some_and(|chain| {
                chain
                    .mentions
                    .iter()
                    .any(|(m, _)| is_name(*m) && others.iter().any(|o| mentions[*m].span.overlaps(*o)))
            });
            count.chained += usize::from(holds);
        }
    }
    let share = |part: usize, whole: usize| 100.0 * part as f64 / whole.max(1) as f64;
    let mut report = format!(
        "{} documents, {sentences} sentences: mentions {:.0} sentences/s, chains {:.0} sentences/s\n",
        documents.len(),
        sentences as f64 / seconds,
        sentences as f64 / chain_seconds
    );
    report.push_str("spans            all   exact %  overlap %   with name %   with own name %      of\n");
    let pronouns =
        counts.iter().filter(|(group, _)| is_pronoun(group)).fold(Count::default(), |mut sum, (_, c)| {
            sum.all += c.all;
            sum.exact += c.exact;
            sum.overlap += c.overlap;
            sum.linked += c.linked;
            sum.chained += c.chained;
            sum.named += c.named;
            sum
        });
    counts.insert("all pronouns".into(), pronouns);
    for (group, count) in &counts {
        report.push_str(&format!(
            "{group:12} {:7} {:9.1} {:10.1} {:13.1} {:17.1} {:7}\n",
            count.all,
            share(count.exact, count.all),
            share(count.overlap, count.all),
            share(count.named, count.all),
            share(count.chained, count.linked),
            count.linked
        ));
    }
    Ok(report)
}
