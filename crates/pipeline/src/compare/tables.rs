//! A comparison as text: for a terminal, and in Markdown, LaTeX and CSV.

use std::{fmt::Write, str::FromStr};

use serde::Serialize;

use super::{
    Comparison, Score, Table,
    appendix::{DatasetRow, DatasetTable},
    published,
    size::Size,
};

/// The output format of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Columns for a terminal.
    Text,
    /// Markdown.
    Markdown,
    /// LaTeX, for the package `booktabs`.
    Latex,
    /// Comma-separated values, with one line for each score.
    Csv,
    /// A self-contained HTML page with plots.
    Html,
}

impl Form {
    const NAMES: [(&'static str, Self); 5] = [
        ("text", Self::Text),
        ("markdown", Self::Markdown),
        ("latex", Self::Latex),
        ("csv", Self::Csv),
        ("html", Self::Html),
    ];
}

impl FromStr for Form {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::NAMES.iter().find(|(name, _)| *name == text).map(|&(_, form)| form);
        found.ok_or_else(|| format!("expected `text`, `markdown`, `latex`, `csv` or `html`, found `{text}`"))
    }
}

/// A row of a table: its name, whether it is a published row, and its cells.
#[derive(Serialize)]
pub(super) struct Row {
    pub(super) name: String,
    pub(super) is_published: bool,
    pub(super) cells: Vec<String>,
}

/// A table with its header.
#[derive(Serialize)]
pub(super) struct Grid {
    pub(super) title: String,
    pub(super) head: Vec<String>,
    pub(super) rows: Vec<Row>,
}

pub(super) fn percent(score: Option<f64>) -> String {
    score.map_or_else(|| "-".into(), |score| format!("{:.1}", 100.0 * score))
}

/// A score in percent, with the decimals of the paper's appendix.
pub(super) fn hundredths(score: Option<f64>) -> String {
    score.map_or_else(|| "-".into(), |score| format!("{:.2}", 100.0 * score))
}

impl Comparison {
    /// A table of the paper: the runs with their means in the last column, then the published rows.
    pub(super) fn grid(&self, table: Table) -> Grid {
        let columns = self.columns();
        let mut head = vec!["system".to_owned()];
        head.extend(columns.iter().map(|(name, _)| name.clone()));
        head.push("mean".into());
        let own = self.systems.iter().map(|system| {
            let cell = |(name, _): &(String, _)| match system.score(table, name) {
                Some(score) => format!("{}{}", percent(Some(score.mean)), score.mark()),
                None => "-".to_owned(),
            };
            let mut cells: Vec<String> = columns.iter().map(cell).collect();
            cells.push(percent(system.mean(table)));
            Row { name: system.name.clone(), is_published: false, cells }
        });
        let published = published::rows(table).iter().map(|row| {
            let score = |dataset| published::score(row, dataset).map(|score| score / 100.0);
            let mut cells: Vec<String> =
                columns.iter().map(|(_, dataset)| percent(dataset.and_then(score))).collect();
            // No mean, because the paper does not have all columns.
            cells.push("-".into());
            Row { name: row.0.to_owned(), is_published: true, cells }
        });
        let has_score = |row: &Row| row.cells.iter().any(|cell| cell != "-");
        let rows = own.chain(published.filter(has_score)).collect();
        Grid { title: table.title().to_owned(), head, rows }
    }

    /// The costs of the runs.
    pub(super) fn costs(&self) -> Grid {
        let head = ["system", "records", "seconds", "records/s", "tokens/s", "peak MiB", "threads"];
        let rows = self.systems.iter().map(|system| {
            let cost = system.cost;
            let speed = |found: Option<f64>| found.map_or_else(|| "-".into(), |speed| format!("{speed:.2}"));
            let memory = match cost.peak_memory_bytes {
                0 => "-".into(),
                bytes => format!("{:.0}", bytes as f64 / f64::from(1 << 20)),
            };
            let cells = vec![
                cost.records.to_string(),
                if cost.seconds > 0.0 { format!("{:.1}", cost.seconds) } else { "-".into() },
                speed(cost.records_per_second()),
                speed(cost.tokens_per_second()),
                memory,
                cost.threads.to_string(),
            ];
            Row { name: system.name.clone(), is_published: false, cells }
        });
        Grid { title: "Cost".to_owned(), head: head.map(str::to_owned).to_vec(), rows: rows.collect() }
    }

    /// The sizes of the systems, then the rows of table 5; `None` if no size of a run is known.
    fn sizes(&self) -> Option<Grid> {
        let cell = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
        let text = |value: Option<&str>| cell(value.map(str::to_owned));
        if self.systems.iter().all(|system| system.size == Size::default()) {
            return None;
        }
        let head = ["system", "parameters", "not trained", "index values", "index MiB"];
        let own = self.systems.iter().map(|system| {
            let Size { parameters, index_bytes } = system.size;
            let millions = parameters.map(|count| format!("{:.1}M", count as f64 / 1e6));
            let mebibytes = index_bytes.map(|bytes| format!("{:.1}", bytes as f64 / f64::from(1 << 20)));
            let cells = vec![cell(millions), cell(None), cell(None), cell(mebibytes)];
            Row { name: system.name.clone(), is_published: false, cells }
        });
        let published = self.published_sizes.iter().map(|row| Row {
            name: row.system.to_owned(),
            is_published: true,
            cells: vec![row.parameters.to_owned(), text(row.fixed), text(row.index), cell(None)],
        });
        Some(Grid {
            title: "Table 5: parameters and indexes".to_owned(),
            head: head.map(str::to_owned).to_vec(),
            rows: own.chain(published).collect(),
        })
    }

    pub(super) fn grids(&self) -> Vec<Grid> {
        let mut grids: Vec<Grid> = Table::ALL.iter().map(|table| self.grid(*table)).collect();
        // Skips a table without scores, such as that of answers for retrieval only.
        grids.retain(|grid| {
            grid.rows.iter().any(|row| !row.is_published && row.cells.iter().any(|cell| cell != "-"))
        });
        grids.extend(self.judged_grids());
        grids.extend(self.appendix.iter().map(DatasetTable::grid));
        grids.extend(self.sizes());
        grids.push(self.costs());
        grids
    }

    /// The notes under the tables, with `between` between two of them.
    fn note(&self, between: &str) -> String {
        let first = self.systems.first().map_or("", |system| system.name.as_str());
        let main = format!(
            "Scores in percent. + and -: better or worse than {first} on the same records, p < 0.05 (paired \
             randomisation). Published rows ({}) are on KILT's own data and source.",
            self.published
        );
        [main].iter().chain(&self.notes).map(String::as_str).collect::<Vec<_>>().join(between)
    }

    /// Formats the comparison.
    pub fn write(&self, form: Form) -> String {
        match form {
            Form::Text => text(&self.grids(), &self.note("\n")),
            Form::Markdown => markdown(&self.grids(), &self.note("\n\n")),
            Form::Latex => latex(&self.grids(), &self.note(" ")),
            Form::Csv => self.csv(),
            Form::Html => super::page::page(self, &self.note(" ")),
        }
    }

    fn csv(&self) -> String {
        let mut text = "system,published,table,dataset,score,difference,p\n".to_owned();
        for table in Table::ALL {
            for system in &self.systems {
                for task in &system.tasks {
                    let Some(score) = system.score(table, &task.name) else { continue };
                    csv_row(&mut text, &system.name, table.title(), (&task.name, score));
                }
            }
            for row in published::rows(table) {
                for (name, dataset) in self.columns() {
                    if let Some(score) = dataset.and_then(|dataset| published::score(row, dataset)) {
                        let (system, table) = (quoted(row.0), quoted(table.title()));
                        let _ = writeln!(text, "{system},true,{table},{name},{:.6},,", score / 100.0);
                    }
                }
            }
        }
        for system in &self.systems {
            for task in &system.tasks {
                for (measure, &score) in &task.measures {
                    csv_row(&mut text, &system.name, measure, (&task.name, score));
                }
            }
        }
        for table in &self.appendix {
            for DatasetRow { system, is_published, scores } in &table.rows {
                for (name, score) in table.columns.iter().zip(scores) {
                    let Some(score) = score else { continue };
                    let (system, label) = (quoted(system), table.label());
                    let _ = writeln!(
                        text,
                        "{system},{is_published},{label} {name},{},{score:.6},,",
                        table.dataset
                    );
                }
            }
        }
        text
    }
}

/// Adds a score of a run as a line of CSV.
fn csv_row(text: &mut String, system: &str, table: &str, (task, score): (&str, Score)) {
    let (difference, p) = score
        .difference
        .map_or_else(Default::default, |(difference, p)| (format!("{difference:.6}"), format!("{p:.6}")));
    let (system, table, task) = (quoted(system), quoted(table), quoted(task));
    let _ = writeln!(text, "{system},false,{table},{task},{:.6},{difference},{p}", score.mean);
}

/// Columns for a terminal.
pub(super) fn text(grids: &[Grid], note: &str) -> String {
    let mut text = String::new();
    for grid in grids {
        // Writing to a string cannot fail, here and below.
        let _ = writeln!(text, "{}", grid.title);
        let name = |row: &Row| {
            if row.is_published { format!("{} [published]", row.name) } else { row.name.clone() }
        };
        let names = grid.rows.iter().map(|row| name(row).chars().count());
        let first = names.chain([grid.head[0].chars().count()]).max().unwrap_or(0);
        let widths: Vec<usize> = (0..grid.head.len() - 1)
            .map(|column| {
                let cells = grid.rows.iter().map(|row| row.cells[column].chars().count());
                cells.chain([grid.head[column + 1].chars().count()]).max().unwrap_or(0)
            })
            .collect();
        let line = |name: &str, cells: &[String]| {
            let cells = cells.iter().zip(&widths).map(|(cell, width)| format!("  {cell:>width$}"));
            format!("{name:<first$}{}\n", cells.collect::<String>())
        };
        let head = line(&grid.head[0], &grid.head[1..]);
        let _ = writeln!(text, "{head}{}", "-".repeat(head.chars().count() - 1));
        for row in &grid.rows {
            text.push_str(&line(&name(row), &row.cells));
        }
        text.push('\n');
    }
    let _ = writeln!(text, "{}", note);
    text
}

/// Markdown.
pub(super) fn markdown(grids: &[Grid], note: &str) -> String {
    let mut text = String::new();
    let escape = |cell: &str| cell.replace('|', "\\|");
    for grid in grids {
        let _ = writeln!(text, "## {}\n\n| {} |", grid.title, grid.head.join(" | "));
        let _ = writeln!(text, "|---|{}", "---:|".repeat(grid.head.len() - 1));
        for row in &grid.rows {
            let name = escape(&row.name);
            let name = if row.is_published { format!("*{name} (published)*") } else { name };
            let _ = writeln!(text, "| {name} | {} |", row.cells.join(" | "));
        }
        text.push('\n');
    }
    let _ = writeln!(text, "{}", note);
    text
}

/// LaTeX.
pub(super) fn latex(grids: &[Grid], note: &str) -> String {
    let mut text = String::new();
    for grid in grids {
        let columns = "r".repeat(grid.head.len() - 1);
        let head: Vec<String> = grid.head.iter().map(|name| latex_escaped(name)).collect();
        let _ = writeln!(
            text,
            "\\begin{{table}}\n\\centering\n\\begin{{tabular}}{{l{columns}}}\n\\toprule\n{} \\\\\n\\midrule",
            head.join(" & ")
        );
        let mut before = false;
        for row in &grid.rows {
            if row.is_published && !before {
                text.push_str("\\midrule\n");
            }
            before = row.is_published;
            let name = latex_escaped(&row.name);
            let name = if row.is_published { format!("\\textit{{{name}}}") } else { name };
            let cell = |cell: &String| match cell.strip_suffix(['+', '-']).filter(|rest| !rest.is_empty()) {
                Some(score) => format!("{score}$^{{{}}}$", &cell[score.len()..]),
                None => cell.clone(),
            };
            let cells: Vec<String> = row.cells.iter().map(cell).collect();
            let _ = writeln!(text, "{name} & {} \\\\", cells.join(" & "));
        }
        let _ = writeln!(
            text,
            "\\bottomrule\n\\end{{tabular}}\n\\caption{{{}. {}}}\n\\end{{table}}\n",
            latex_escaped(&grid.title),
            latex_escaped(note)
        );
    }
    text
}

/// A cell of CSV, in quotes where it needs them.
pub(super) fn quoted(text: &str) -> String {
    match text.contains([',', '"', '\n']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}

fn latex_escaped(text: &str) -> String {
    let mut escaped = String::new();
    for c in text.chars() {
        match c {
            '&' | '%' | '$' | '#' | '_' | '{' | '}' => escaped.extend(['\\', c]),
            '<' => escaped.push_str("$<$"),
            '>' => escaped.push_str("$>$"),
            '\\' => escaped.push_str("\\textbackslash{}"),
            '~' | '^' => escaped.push_str(&format!("\\{c}{{}}")),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::BTreeMap;

    use sporran_kilt::{Dataset, Split};

    use super::*;
    use crate::compare::{Cost, System, Task, appendix::dataset_tables, size};

    /// Two runs over NQ, the second significantly better.
    pub(in crate::compare) fn comparison() -> Comparison {
        let task = |mean: f64, difference| Task {
            name: "nq".into(),
            dataset: Some(Dataset::Nq),
            split: Some(Split::Dev),
            records: 10,
            metric: Dataset::Nq.metric(),
            answer: Some(Score { mean, difference }),
            kilt: Some(Score { mean: mean / 2.0, difference: None }),
            r_precision: Some(Score { mean: 0.5, difference: None }),
            recall: vec![(1, 0.5), (5, 0.75)],
            scores: [
                ("Rprec", 0.5),
                ("recall@5", 0.75),
                ("em", mean),
                ("f1", mean + 0.125),
                ("KILT-em", mean / 2.0),
            ]
            .map(|(name, score)| (name.to_owned(), score))
            .into(),
            measures: BTreeMap::new(),
            seconds: Some(2.0),
            answered: 10,
            tokens: 25,
        };
        let system = |name: &str, mean, difference| System {
            name: name.into(),
            run: "runs/x".into(),
            tasks: vec![task(mean, difference)],
            size: Size { parameters: Some(12_340_000), index_bytes: Some(3 << 19) },
            cost: Cost { seconds: 2.0, records: 10, tokens: 25, peak_memory_bytes: 3 << 20, threads: 2 },
        };
        let systems = vec![system("a_b", 0.25, None), system("c<d", 0.5, Some((0.25, 0.01)))];
        let appendix = dataset_tables(&systems);
        Comparison {
            systems,
            appendix,
            notes: Vec::new(),
            published: published::SOURCE,
            published_sizes: size::PUBLISHED,
        }
    }

    #[test]
    fn every_form_has_the_runs_the_marks_and_the_published_rows() {
        let found = comparison();
        let text = found.write(Form::Text);
        let row = |start: &str| text.lines().find(|line| line.starts_with(start)).unwrap().to_owned();
        assert_eq!(row("c<d").split_whitespace().collect::<Vec<_>>(), ["c<d", "50.0+", "50.0"]);
        assert_eq!(
            row("RAG [published]").split_whitespace().collect::<Vec<_>>(),
            ["RAG", "[published]", "44.4", "-"]
        );
        // Systems without a score in any of the columns are left out.
        let (headline, _) = text.split_once("Table 13").unwrap();
        assert!(!headline.contains("BLINK [published]") && headline.contains("BLINK + flair [published]"));
        let costs = text.lines().rfind(|line| line.starts_with("c<d")).unwrap();
        assert_eq!(
            costs.split_whitespace().collect::<Vec<_>>(),
            ["c<d", "10", "2.0", "5.00", "12.50", "3", "2"]
        );
        let markdown = found.write(Form::Markdown);
        assert!(
            markdown.contains("| c<d | 50.0+ | 50.0 |")
                && markdown.contains("| *RAG (published)* | 44.4 | - |")
        );
        let latex = found.write(Form::Latex);
        assert!(
            latex.contains("a\\_b & 25.0 & 25.0 \\\\") && latex.contains("c$<$d & 50.0$^{+}$ & 50.0 \\\\")
        );
        let csv = found.write(Form::Csv);
        assert!(csv.contains("c<d,false,Downstream,nq,0.500000,0.250000,0.010000\n"));
        assert!(csv.contains("RAG,true,KILT scores,nq,0.326900,,\n"));
        assert!(csv.contains("c<d,false,Table 13 dev f1,nq,0.625000,,\n"));
        assert!(csv.contains("BERT + DPR,true,Table 13 dev KILT-f1,nq,0.398400,,\n"));
    }

    #[test]
    fn tables_of_single_datasets_and_sizes_follow_the_headline_tables() {
        let found = comparison();
        let titles: Vec<String> = found.grids().into_iter().map(|grid| grid.title).collect();
        let expected = [
            "Downstream",
            "Page-level R-precision",
            "KILT scores",
            "Table 13: Natural Questions, dev",
            "Table 5: parameters and indexes",
            "Cost",
        ];
        assert_eq!(titles, expected);
        let text = found.write(Form::Text);
        let rows = |part: &str| -> Vec<Vec<String>> {
            let after = text.split_once(part).unwrap().1;
            // After the header and its line.
            let lines = after.lines().skip(3).take_while(|line| !line.is_empty());
            lines.map(|line| line.split_whitespace().map(str::to_owned).collect()).collect()
        };
        let nq = rows("Table 13: Natural Questions, dev");
        assert_eq!(nq.len(), 7);
        assert_eq!(nq[1], ["c<d", "50.00", "75.00", "50.00", "62.50", "25.00", "-"]);
        assert_eq!(nq[2][2..], ["0.00", "0.00", "26.15", "32.06", "0.00", "0.00"]);
        let sizes = rows("Table 5: parameters and indexes");
        assert_eq!(sizes.len(), 11);
        assert_eq!(sizes[0], ["a_b", "12.3M", "-", "-", "1.5"]);
        assert_eq!(sizes[9], ["RAG", "[published]", "626M", "-", "15B", "-"]);
        let json = serde_json::to_value(&found).unwrap();
        assert_eq!(json["appendix"][0]["table"], 13);
        assert_eq!(json["appendix"][0]["rows"][6]["system"], "RAG");
        assert_eq!(json["appendix"][0]["rows"][6]["scores"][5], 40.64 / 100.0);
        assert_eq!(json["published_sizes"][2]["fixed"], "93M");
        assert_eq!(json["systems"][0]["size"]["parameters"], 12_340_000);
        assert!(found.write(Form::Html).contains("Table 13: Natural Questions, dev"));
    }

    #[test]
    fn every_form_has_the_measures_of_judged_queries() {
        let mut found = comparison();
        for (system, (mean, difference)) in
            found.systems.iter_mut().zip([(0.25, None), (0.5, Some((0.25, 0.01)))])
        {
            let task = &mut system.tasks[0];
            (task.name, task.dataset) = ("test.jsonl".to_owned(), None);
            (task.answer, task.kilt, task.r_precision) = (None, None, None);
            task.measures = [("nDCG@10".to_owned(), Score { mean, difference })].into();
            (system.cost.seconds, system.cost.records) = (0.0, 10);
        }
        let text = found.write(Form::Text);
        assert!(text.contains("Measures of test.jsonl\nsystem  nDCG@10\n"), "{text}");
        assert!(text.contains("c<d       50.0+\n"), "{text}");
        assert!(text.contains("a_b          10        -          -"), "{text}");
        assert!(found.write(Form::Markdown).contains("| c<d | 50.0+ |"));
        assert!(found.write(Form::Latex).contains("c$<$d & 50.0$^{+}$"));
        assert!(found.write(Form::Csv).contains("c<d,false,nDCG@10,test.jsonl,0.500000,0.250000,0.010000\n"));
        assert!(found.write(Form::Html).contains("Measures of test.jsonl"));
    }

    #[test]
    fn forms_have_names() {
        assert_eq!("latex".parse(), Ok(Form::Latex));
        assert!("pdf".parse::<Form>().unwrap_err().contains("found `pdf`"));
    }
}
