//! Comparison of runs of knowledge-base population over KnowledgeNet's documents: tables 3 and 4 of its paper, and the causes
//! of wrong and missed facts.

use std::{
    fmt::Write,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use sporran_extractor::relations::MaximumRecall;
use sporran_kilt::{
    jsonl,
    scores::extraction::{Counts, Method, evaluate},
};

use super::{
    config_of,
    tables::{self, Form, Grid, Row, percent, quoted},
};
use crate::{
    Error, Result,
    run_dir::folder::file_of_run,
    workflows::population::{Causes, InputOptions, PopulatedFile, errors, maximum_recall},
};

/// Table 3 of the paper, in percent: precision, recall and F1 by text, then by links.
const PUBLISHED: [(&str, [f64; 6]); 6] = [
    ("Baseline 1", [44.0, 64.0, 52.0, 31.0, 26.0, 28.0]),
    ("Baseline 2", [49.0, 64.0, 55.0, 37.0, 32.0, 34.0]),
    ("Baseline 3", [47.0, 66.0, 55.0, 35.0, 37.0, 36.0]),
    ("Baseline 4", [60.0, 65.0, 62.0, 51.0, 48.0, 49.0]),
    ("Baseline 5", [68.0, 70.0, 69.0, 53.0, 48.0, 50.0]),
    ("human", [88.0, 88.0, 88.0, 81.0, 84.0, 82.0]),
];

/// Table 4 of the paper, in percent: the maximum recall by text and by links, on fold 4.
const PUBLISHED_RECALL: [(&str, [f64; 2]); 5] = [
    ("Baseline 1", [80.0, 33.0]),
    ("Baseline 2", [80.0, 37.0]),
    ("Baseline 3", [80.0, 37.0]),
    ("Baseline 4", [90.0, 59.0]),
    ("Baseline 5", [90.0, 59.0]),
];

/// The folder of KnowledgeNet's documents in a run.
const DOCUMENTS: &str = "knowledgenet";

/// A comparison of runs of the workflow `population`.
#[derive(Clone, Debug, Serialize)]
pub struct FactComparison {
    /// The runs, in the given order.
    pub systems: Vec<FactRun>,
}

/// A run.
#[derive(Clone, Debug, Serialize)]
pub struct FactRun {
    /// The name.
    pub name: String,
    /// The folder.
    pub run: PathBuf,
    /// The facts whose mentions overlap those of gold facts.
    pub text: Counts,
    /// The facts with the links of gold facts.
    pub link: Counts,
    /// The maximum recall on the validation documents of the model's training; none where the model's folder does not tell it.
    pub maximum_recall: Option<MaximumRecall>,
    /// The causes of wrong and missed facts.
    pub causes: Causes,
}

/// The fields of `report.json` that are used.
#[derive(Deserialize)]
struct Report {
    name: String,
    files: Vec<PopulatedFile>,
}

/// The fields of `config.toml` that are used.
#[derive(Deserialize)]
struct Config {
    input: InputOptions,
    relations: RelationsConfig,
}

#[derive(Deserialize)]
struct RelationsConfig {
    model: PathBuf,
}

/// Compares the folders of finished runs over KnowledgeNet's documents. The gold facts are those of the runs' input files.
///
/// # Errors
/// [`Error::Unfinished`] for an unfinished run; [`Error::NotARun`] for other folders;
/// [`sporran_kilt::Error::Argument`] for a run over other documents; errors of files and of scoring.
pub fn compare_facts(runs: &[PathBuf]) -> Result<FactComparison> {
    let systems = runs.iter().map(|run| system(run)).collect::<Result<_>>()?;
    Ok(FactComparison { systems })
}

fn system(run: &Path) -> Result<FactRun> {
    let report: Report = jsonl::read_json(file_of_run(run, "report.json")?)?;
    let config: Config = config_of(run)?;
    let folds: Vec<Option<i64>> = match &*config.input.folds {
        [] => vec![None],
        folds => folds.iter().copied().map(Some).collect(),
    };
    let (mut text, mut link, mut causes) = (Counts::default(), Counts::default(), Causes::default());
    for file in &report.files {
        let Some(guess) = file.written.iter().find(|path| path.starts_with(DOCUMENTS)) else {
            let message = format!(
                "{}: expected a run over KnowledgeNet's documents (`input.format = \"knowledgenet\"`), found one over {}",
                run.display(),
                file.input.display()
            );
            return Err(Error::Kilt(sporran_kilt::Error::Argument(message)));
        };
        let guess = run.join(guess);
        for fold in &folds {
            text += evaluate(&file.input, &guess, Method::SpanOverlap, *fold)?.total;
            link += evaluate(&file.input, &guess, Method::Uri, *fold)?.total;
            causes += errors(&file.input, &guess, *fold)?.remove(Causes::ALL).unwrap_or_default();
        }
    }
    let maximum_recall = maximum_recall(&config.relations.model)?;
    Ok(FactRun { name: report.name, run: run.to_owned(), text, link, maximum_recall, causes })
}

/// The rows of a published table.
fn published<const N: usize>(table: &[(&str, [f64; N])]) -> impl Iterator<Item = Row> {
    table.iter().map(|(name, scores)| Row {
        name: (*name).to_owned(),
        is_published: true,
        cells: scores.iter().map(|score| format!("{score:.1}")).collect(),
    })
}

impl FactComparison {
    /// Table 3: the scores of all runs, then the published rows.
    fn scores(&self) -> Grid {
        let head = ["system", "text P", "text R", "text F1", "link P", "link R", "link F1"];
        let own = self.systems.iter().map(|system| {
            let of = |counts: Counts| {
                [counts.precision(), counts.recall(), counts.f1()].map(|score| percent(score.value()))
            };
            let cells = [of(system.text), of(system.link)].concat();
            Row { name: system.name.clone(), is_published: false, cells }
        });
        let rows = own.chain(published(&PUBLISHED)).collect();
        Grid { title: "Facts".to_owned(), head: head.map(str::to_owned).to_vec(), rows }
    }

    /// Table 4: the recall of the candidates of all runs, then the published rows.
    fn candidates(&self) -> Grid {
        let head = ["system", "maximum recall, text", "maximum recall, link"];
        let own = self.systems.iter().map(|system| {
            let recall = system.maximum_recall.unwrap_or_default();
            let cells = [recall.text, recall.link].map(|share| percent(share.value())).to_vec();
            Row { name: system.name.clone(), is_published: false, cells }
        });
        let rows = own.chain(published(&PUBLISHED_RECALL)).collect();
        Grid { title: "Candidates".to_owned(), head: head.map(str::to_owned).to_vec(), rows }
    }

    /// The causes of missed and wrong facts, as numbers of facts.
    fn causes(&self) -> Grid {
        let head: Vec<String> = std::iter::once("system".to_owned())
            .chain(Causes::default().columns().map(|(name, _)| name.to_owned()))
            .collect();
        let row = |system: &FactRun| Row {
            name: system.name.clone(),
            is_published: false,
            cells: system.causes.columns().map(|(_, count)| count.to_string()).to_vec(),
        };
        Grid { title: "Causes".to_owned(), head, rows: self.systems.iter().map(row).collect() }
    }

    /// Formats the comparison.
    #[must_use]
    pub fn write(&self, form: Form) -> String {
        let note = "Scores in percent. Text: the mentions overlap; link: both links are equal. Maximum recall: the share of \
                    the validation documents' facts among the candidates. Causes are numbers of facts. Published rows (Mesquita et \
                    al., KnowledgeNet, 2019, tables 3 and 4): scores on its hidden fold 5, maximum recall on fold 4.";
        let grids = vec![self.scores(), self.candidates(), self.causes()];
        match form {
            Form::Text => tables::text(&grids, note),
            Form::Markdown => tables::markdown(&grids, note),
            Form::Latex => tables::latex(&grids, note),
            Form::Csv => self.csv(),
            Form::Html => super::page::of_tables(grids, note),
        }
    }

    fn csv(&self) -> String {
        let mut lines = "system,evaluation,found,wrong,missed,precision,recall,f1\n".to_owned();
        for system in &self.systems {
            for (evaluation, counts) in [("text", system.text), ("link", system.link)] {
                let Counts { found, wrong, missed } = counts;
                let [precision, recall, f1] = [counts.precision(), counts.recall(), counts.f1()]
                    .map(|score| score.value().map_or_else(String::new, |score| format!("{score:.6}")));
                let name = quoted(&system.name);
                // Writing to a string cannot fail.
                let _ =
                    writeln!(lines, "{name},{evaluation},{found},{wrong},{missed},{precision},{recall},{f1}");
            }
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::compare::{RunKind, kind_of_runs};

    fn document(fold: i64, facts: &[Value]) -> Value {
        let property = json!([{"propertyId": "25", "propertyName": "SPOUSE"}]);
        let passage = json!({"passageId": "p", "passageStart": 0, "passageEnd": 40, "passageText": "",
            "exhaustivelyAnnotatedProperties": property, "facts": facts});
        json!({"fold": fold, "documentId": fold.to_string(), "documentText": "", "passages": [passage]})
    }

    fn fact(subject: usize, object: usize, uri: &str) -> Value {
        json!({"propertyId": "25", "subjectStart": subject, "subjectEnd": subject + 3, "objectStart": object,
            "objectEnd": object + 3, "subjectUri": uri, "objectUri": "http://www.wikidata.org/entity/Q2"})
    }

    fn write(path: &Path, documents: &[Value]) {
        let lines: Vec<String> = documents.iter().map(Value::to_string).collect();
        jsonl::write(path, lines.join("\n").as_bytes()).unwrap();
    }

    /// A run over fold 4 of a file with two folds.
    fn run(place: &Path, written: &str) -> PathBuf {
        let gold = place.join("gold.json");
        write(
            &gold,
            &[document(3, &[fact(20, 30, "Q9")]), document(4, &[fact(0, 8, "Q1"), fact(20, 30, "Q5")])],
        );
        let run = place.join("own");
        // The first fact has another address of its entity; the second is wrong.
        let guess = [fact(1, 9, "http://www.wikidata.org/entity/Q1"), fact(12, 16, "Q7")];
        write(&run.join(written), &[document(4, &guess)]);
        let model = place.join("model");
        jsonl::write(
            model.join("maximum-recall.json"),
            br#"{"maximum_recall_text":0.75,"maximum_recall_link":null}"#,
        )
        .unwrap();
        let config = format!(
            "workflow = 'population'\nname = 'own'\n[input]\nformat = 'knowledgenet'\nfiles = [{gold:?}]\nfolds = [4]\n\
             [relations]\nmodel = {model:?}\n"
        );
        std::fs::write(run.join("config.toml"), config).unwrap();
        std::fs::write(run.join("manifest.json"), r#"{"workflow":"population","name":"own"}"#).unwrap();
        let file = PopulatedFile { input: gold, written: vec![written.into()], ..PopulatedFile::default() };
        jsonl::write_json(run.join("report.json"), &json!({"name": "own", "files": [file]})).unwrap();
        run
    }

    #[test]
    fn a_run_stands_above_the_published_rows() {
        let place = tempfile::tempdir().unwrap();
        let run = run(place.path(), "knowledgenet/gold.json");
        let found = compare_facts(std::slice::from_ref(&run)).unwrap();
        let system = &found.systems[0];
        assert_eq!(system.text, Counts { found: 1, wrong: 1, missed: 1 });
        assert_eq!(system.link, Counts { found: 1, wrong: 1, missed: 1 });
        assert_eq!((system.causes.found, system.causes.link_missed, system.causes.relation_wrong), (1, 0, 1));
        let markdown = found.write(Form::Markdown);
        assert!(markdown.contains("| own | 50.0 | 50.0 | 50.0 | 50.0 | 50.0 | 50.0 |"), "{markdown}");
        assert!(markdown.contains("Baseline 5") && markdown.contains("| 68.0 | 70.0 | 69.0 |"), "{markdown}");
        assert!(found.write(Form::Csv).contains("own,text,1,1,1,0.500000,0.500000,0.500000\n"));
        assert!(markdown.contains("| own | 75.0 | - |"), "{markdown}");
        assert!(markdown.contains("| *Baseline 4 (published)* | 90.0 | 59.0 |"), "{markdown}");
        assert!(found.write(Form::Html).contains("Causes"));
    }

    #[test]
    fn runs_of_other_workflows_are_not_mixed_in() {
        let place = tempfile::tempdir().unwrap();
        let run = run(place.path(), "knowledgenet/gold.json");
        let other = place.path().join("other");
        jsonl::write(other.join("manifest.json"), br#"{"workflow":"answer"}"#).unwrap();
        assert_eq!(kind_of_runs(std::slice::from_ref(&run)).unwrap(), RunKind::Facts);
        assert_eq!(kind_of_runs(std::slice::from_ref(&other)).unwrap(), RunKind::Answers);
        let message = kind_of_runs(&[other, run]).unwrap_err().to_string();
        assert!(message.contains("found 1 of `population` and others"), "{message}");
    }

    #[test]
    fn a_run_over_other_documents_is_refused() {
        let place = tempfile::tempdir().unwrap();
        let run = run(place.path(), "predictions/gold.jsonl");
        let message = compare_facts(&[run]).unwrap_err().to_string();
        assert!(message.contains("expected a run over KnowledgeNet's documents"), "{message}");
    }
}
