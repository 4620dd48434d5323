//! Comparison of runs over KoRC's questions: tables 2, 3 and 4 of the KoRC paper.

use std::{
    cmp::Ordering,
    fmt::Write,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use sporran_kilt::{jsonl, scores::answer_set::Scores};

use super::{
    config_of,
    tables::{self, Form, Grid, Row, percent, quoted},
};
use crate::{Result, run_dir::folder::file_of_run};

/// The versions of the questions, in the paper's order.
const VERSIONS: [&str; 3] = ["template", "human", "llm"];

/// Table 2 of the paper, in percent: P-ACC of ID, OOD and both, then P-F1.
const PUBLISHED: [(&str, [f64; 6]); 10] = [
    ("BART-base", [50.3, 24.9, 41.4, 52.9, 30.2, 44.9]),
    ("Flan-T5-base", [33.5, 24.0, 30.2, 35.8, 27.5, 32.9]),
    ("Flan-T5-XXL", [63.8, 32.3, 52.8, 65.8, 37.2, 55.8]),
    ("GPT-3", [18.2, 24.6, 20.5, 22.2, 30.2, 25.0]),
    ("GLM-130B", [9.9, 14.9, 11.6, 12.7, 18.8, 14.8]),
    ("RAG-seq", [61.7, 25.9, 49.2, 63.7, 30.0, 51.9]),
    ("RAG-token", [57.4, 23.5, 45.5, 59.1, 27.2, 47.9]),
    ("EmbedKGQA", [61.2, 21.9, 47.4, 68.3, 28.9, 54.5]),
    ("EmbedKGQA*", [34.0, 13.6, 26.9, 41.6, 21.8, 34.6]),
    ("TransferNet", [32.7, 12.9, 25.8, 37.7, 16.6, 30.3]),
];

/// A comparison of runs of the workflow `kbqa`.
#[derive(Clone, Debug, Serialize)]
pub struct QuestionComparison {
    /// The runs, in the given order.
    pub systems: Vec<QuestionSystem>,
}

/// A run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct QuestionSystem {
    /// The name.
    pub name: String,
    /// The folder.
    pub run: PathBuf,
    /// The version of the questions that the system learned from.
    pub trained: String,
    /// The version of the questions that it answered.
    pub tested: String,
    /// Whether the questions had their document.
    pub document: bool,
    /// `anonymous` or `restored`: the question's entity in the document.
    pub names: String,
    /// The in-distribution test.
    pub iid: Option<QuestionScores>,
    /// The out-of-distribution test.
    pub ood: Option<QuestionScores>,
    /// The options of the reasoner without the model's folder. Runs of one system have the same.
    #[serde(skip)]
    reasoner: String,
}

/// The scores of a test.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct QuestionScores {
    /// The number of questions.
    pub questions: usize,
    /// The mean scores, from 0 to 1.
    #[serde(flatten)]
    pub scores: Scores,
}

/// The fields of `report.json` that are used.
#[derive(Deserialize)]
struct Report {
    tests: Vec<Tested>,
}

#[derive(Deserialize)]
struct Tested {
    test: String,
    questions: usize,
    scores: Option<TestScores>,
}

#[derive(Deserialize)]
struct TestScores {
    p_acc: f64,
    p_f1: f64,
}

/// Compares the folders of finished runs over KoRC's questions.
///
/// # Errors
/// [`crate::Error::Unfinished`] for an unfinished run; [`crate::Error::NotARun`] for other folders; errors of files.
pub fn compare_questions(runs: &[PathBuf]) -> Result<QuestionComparison> {
    let systems = runs.iter().map(|run| system(run)).collect::<Result<_>>()?;
    Ok(QuestionComparison { systems })
}

fn system(run: &Path) -> Result<QuestionSystem> {
    let report: Report = jsonl::read_json(file_of_run(run, "report.json")?)?;
    let config: toml::Table = config_of(run)?;
    let data = |key: &str| config.get("data").and_then(|data| data.get(key));
    let word = |key: &str| data(key).and_then(toml::Value::as_str);
    let tested = word("version").unwrap_or("human");
    let mut reasoner = config.get("reasoner").and_then(toml::Value::as_table).cloned().unwrap_or_default();
    reasoner.remove("model");
    let test = |name: &str| {
        let found = report.tests.iter().find(|tested| tested.test == name)?;
        let TestScores { p_acc, p_f1 } = *found.scores.as_ref()?;
        Some(QuestionScores { questions: found.questions, scores: Scores { p_acc, p_f1 } })
    };
    Ok(QuestionSystem {
        name: config.get("name").and_then(toml::Value::as_str).unwrap_or_default().to_owned(),
        run: run.to_owned(),
        trained: word("train-version").unwrap_or(tested).to_owned(),
        tested: tested.to_owned(),
        document: data("document").and_then(toml::Value::as_bool).unwrap_or(true),
        names: word("names").unwrap_or("anonymous").to_owned(),
        iid: test("iid"),
        ood: test("ood"),
        reasoner: reasoner.to_string(),
    })
}

impl QuestionSystem {
    /// The mean over the questions of both tests; `None` without both.
    #[must_use]
    pub fn mean(&self) -> Option<Scores> {
        let (iid, ood) = (self.iid?, self.ood?);
        let [a, b] = [iid, ood].map(|test| test.questions as f64);
        let of = |score: fn(&Scores) -> f64| {
            (a > 0.0 || b > 0.0).then(|| (a * score(&iid.scores) + b * score(&ood.scores)) / (a + b))
        };
        Some(Scores { p_acc: of(|scores| scores.p_acc)?, p_f1: of(|scores| scores.p_f1)? })
    }

    fn is_original(&self) -> bool {
        self.document && self.names == "anonymous"
    }
}

/// The mean P-F1 of the runs of a cell.
fn mean_f1<'s>(systems: impl Iterator<Item = &'s QuestionSystem>) -> Option<f64> {
    let scores: Vec<f64> = systems.filter_map(|system| Some(system.mean()?.p_f1)).collect();
    (!scores.is_empty()).then(|| scores.iter().sum::<f64>() / scores.len() as f64)
}

/// A score with its difference from another one, as in the paper: `39.4 (9.3↓)`.
fn with_change(score: Option<f64>, other: Option<f64>) -> String {
    match (score, other) {
        (Some(score), Some(other)) => {
            let arrow = match score.total_cmp(&other) {
                Ordering::Less => "↓",
                Ordering::Equal => "",
                Ordering::Greater => "↑",
            };
            format!("{:.1} ({:.1}{arrow})", 100.0 * score, 100.0 * (score - other).abs())
        }
        (score, _) => percent(score),
    }
}

impl QuestionComparison {
    /// Table 2: the scores of all runs, then the published rows.
    fn scores(&self) -> Grid {
        let head = ["system", "P-ACC ID", "P-ACC OOD", "P-ACC mean", "P-F1 ID", "P-F1 OOD", "P-F1 mean"];
        let own = self.systems.iter().map(|system| {
            let tests =
                [system.iid.map(|test| test.scores), system.ood.map(|test| test.scores), system.mean()];
            let of = |score: fn(&Scores) -> f64| tests.map(|test| percent(test.as_ref().map(score)));
            let cells = [of(|scores| scores.p_acc), of(|scores| scores.p_f1)].concat();
            Row { name: system.name.clone(), is_published: false, cells }
        });
        let published = PUBLISHED.iter().map(|(name, scores)| Row {
            name: (*name).to_owned(),
            is_published: true,
            cells: scores.iter().map(|score| format!("{score:.1}")).collect(),
        });
        let rows = own.chain(published).collect();
        Grid { title: "Questions".to_owned(), head: head.map(str::to_owned).to_vec(), rows }
    }

    /// The runs of each system, in the order of their first run.
    fn groups(
        &self,
        is_same: impl Fn(&QuestionSystem, &QuestionSystem) -> bool,
    ) -> Vec<Vec<&QuestionSystem>> {
        let mut groups: Vec<Vec<&QuestionSystem>> = Vec::new();
        for system in &self.systems {
            match groups.iter_mut().find(|group| is_same(group[0], system)) {
                Some(group) => group.push(system),
                None => groups.push(vec![system]),
            }
        }
        groups
    }

    /// Table 3: for each system that learned from one version and answered another, P-F1 by both versions.
    fn cross_evaluations(&self) -> Vec<Grid> {
        let groups = self.groups(|a, b| a.reasoner == b.reasoner);
        let grid = |group: Vec<&QuestionSystem>| -> Option<Grid> {
            let group: Vec<&QuestionSystem> =
                group.into_iter().filter(|system| system.is_original()).collect();
            let first = group.first()?;
            if group.iter().all(|system| system.trained == system.tested) {
                return None;
            }
            let cell = |trained: &str, tested: &str| {
                mean_f1(
                    group
                        .iter()
                        .copied()
                        .filter(|system| system.trained == trained && system.tested == tested),
                )
            };
            let has = |of: fn(&QuestionSystem) -> &str, version: &str| {
                group.iter().any(|system| of(system) == version)
            };
            let tested: Vec<&str> =
                VERSIONS.into_iter().filter(|version| has(|system| &system.tested, version)).collect();
            let rows = VERSIONS.into_iter().filter(|version| has(|system| &system.trained, version)).map(
                |trained| {
                    let own = cell(trained, trained);
                    let cells = tested
                        .iter()
                        .map(|&tested| with_change(cell(trained, tested), own.filter(|_| tested != trained)));
                    Row { name: trained.to_owned(), is_published: false, cells: cells.collect() }
                },
            );
            let rows = rows.collect();
            let head =
                std::iter::once("trained on").chain(tested.iter().copied()).map(str::to_owned).collect();
            Some(Grid { title: format!("Cross evaluation of {}, P-F1", first.name), head, rows })
        };
        groups.into_iter().filter_map(grid).collect()
    }

    /// Table 4: P-F1 of each system, without documents, and with restored names.
    fn ablations(&self) -> Option<Grid> {
        let groups =
            self.groups(|a, b| a.reasoner == b.reasoner && a.trained == b.trained && a.tested == b.tested);
        let row = |group: Vec<&QuestionSystem>| -> Option<Row> {
            let whole = group.iter().copied().filter(|system| system.is_original());
            let name = whole.clone().next()?.name.clone();
            let original = mean_f1(whole);
            let alone = mean_f1(group.iter().copied().filter(|system| !system.document));
            let restored = mean_f1(group.iter().copied().filter(|system| system.names == "restored"));
            (alone.is_some() || restored.is_some()).then(|| {
                let cells =
                    vec![percent(original), with_change(alone, original), with_change(restored, original)];
                Row { name, is_published: false, cells }
            })
        };
        let rows: Vec<Row> = groups.into_iter().filter_map(row).collect();
        let head = ["system", "original", "- document", "- anon."].map(str::to_owned).to_vec();
        (!rows.is_empty()).then(|| Grid { title: "Ablations, P-F1".to_owned(), head, rows })
    }

    fn grids(&self) -> Vec<Grid> {
        std::iter::once(self.scores()).chain(self.cross_evaluations()).chain(self.ablations()).collect()
    }

    /// Formats the comparison.
    #[must_use]
    pub fn write(&self, form: Form) -> String {
        let note = "Scores in percent. The mean is over the questions of both tests. A cell of several runs has their mean. \
                    Published rows (Yao et al., KoRC, 2023, table 2) are on KoRC's own data and knowledge base, over GPT-2's tokens; \
                    scores of runs are over words.";
        match form {
            Form::Text => tables::text(&self.grids(), note),
            Form::Markdown => tables::markdown(&self.grids(), note),
            Form::Latex => tables::latex(&self.grids(), note),
            Form::Csv => self.csv(),
            Form::Html => super::page::of_tables(self.grids(), note),
        }
    }

    fn csv(&self) -> String {
        let mut text = "system,trained,tested,document,names,test,questions,p_acc,p_f1\n".to_owned();
        for system in &self.systems {
            for (test, scores) in [("iid", system.iid), ("ood", system.ood)] {
                let Some(QuestionScores { questions, scores }) = scores else { continue };
                let QuestionSystem { name, trained, tested, document, names, .. } = system;
                // Writing to a string cannot fail.
                let _ = writeln!(
                    text,
                    "{},{trained},{tested},{document},{names},{test},{questions},{:.6},{:.6}",
                    quoted(name),
                    scores.p_acc,
                    scores.p_f1
                );
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::{RunKind, kind_of_runs};

    fn run(folder: &Path, name: &str, data: &str, f1: [f64; 2]) -> PathBuf {
        let run = folder.join(name);
        std::fs::create_dir(&run).unwrap();
        let config = format!(
            "workflow = 'kbqa'\nname = '{name}'\n[data]\n{data}\n[reasoner]\nkind = 'seq2seq'\nmodel = 'runs/{name}/model'\n"
        );
        std::fs::write(run.join("config.toml"), config).unwrap();
        std::fs::write(run.join("manifest.json"), r#"{"workflow":"kbqa","name":"x"}"#).unwrap();
        let test = |test: &str, questions: usize, f1: f64| {
            serde_json::json!({ "test": test, "predictions": "p", "questions": questions,
                "scores": { "p_acc": f1 / 2.0, "p_f1": f1 } })
        };
        let tests = [test("iid", 30, f1[0]), test("ood", 10, f1[1])];
        let report = serde_json::json!({ "model": "m", "steps": null, "valid": null, "tests": tests });
        std::fs::write(run.join("report.json"), report.to_string()).unwrap();
        run
    }

    fn rows(text: &str, title: &str) -> Vec<Vec<String>> {
        let lines = text.lines().skip_while(|line| !line.starts_with(title)).skip(3);
        let row = |line: &str| {
            line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).map(str::to_owned).collect()
        };
        lines.take_while(|line| !line.is_empty()).map(row).collect()
    }

    #[test]
    fn tables_have_the_layout_of_the_paper() {
        let place = tempfile::tempdir().unwrap();
        let make = |name: &str, data: &str, f1| run(place.path(), name, data, f1);
        let runs = [
            make("own", "", [0.8, 0.4]),
            make("template", "version = 'template'", [0.6, 0.6]),
            make("template-human", "version = 'human'\ntrain-version = 'template'", [0.4, 0.2]),
            make("alone", "document = false", [0.2, 0.2]),
            make("named", "names = 'restored'", [0.9, 0.7]),
        ];
        assert_eq!(kind_of_runs(&runs).unwrap(), RunKind::Questions);
        let found = compare_questions(&runs).unwrap();
        let text = found.write(Form::Text);
        // Means over 30 and 10 questions: (24 + 4) / 40 = 70.0.
        let scores = rows(&text, "Questions");
        assert_eq!(scores[0], ["own", "40.0", "20.0", "35.0", "80.0", "40.0", "70.0"]);
        let bart = ["BART-base [published]", "50.3", "24.9", "41.4", "52.9", "30.2", "44.9"];
        assert_eq!((&scores[5][..], scores.len()), (&bart.map(str::to_owned)[..], 15));
        // 0.35 for 0.6: 25 less.
        let cross = rows(&text, "Cross evaluation of own, P-F1");
        assert_eq!(cross, [vec!["template", "60.0", "35.0 (25.0↓)"], vec!["human", "-", "70.0"]]);
        let ablations = rows(&text, "Ablations, P-F1");
        assert_eq!(ablations, [["own", "70.0", "20.0 (50.0↓)", "85.0 (15.0↑)"]]);
        let markdown = found.write(Form::Markdown);
        assert!(markdown.contains("| system | original | - document | - anon. |"), "{markdown}");
        assert!(
            found.write(Form::Csv).contains("alone,human,human,false,anonymous,ood,10,0.100000,0.200000\n")
        );
        assert!(found.write(Form::Html).contains("Cross evaluation of own"));
    }
}
