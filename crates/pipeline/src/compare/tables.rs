//! A comparison as text: for a terminal, and in Markdown, LaTeX and CSV.

use std::{fmt::Write, str::FromStr};

use serde::Serialize;

use super::{Comparison, Table, published};

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
                format!("{:.1}", cost.seconds),
                speed(cost.records_per_second()),
                speed(cost.tokens_per_second()),
                memory,
                cost.threads.to_string(),
            ];
            Row { name: system.name.clone(), is_published: false, cells }
        });
        Grid { title: "Cost".to_owned(), head: head.map(str::to_owned).to_vec(), rows: rows.collect() }
    }

    pub(super) fn grids(&self) -> Vec<Grid> {
        let mut grids: Vec<Grid> = Table::ALL.iter().map(|table| self.grid(*table)).collect();
        // Skips a table without scores, such as that of answers for retrieval only.
        grids.retain(|grid| {
            grid.rows.iter().any(|row| !row.is_published && row.cells.iter().any(|cell| cell != "-"))
        });
        grids.push(self.costs());
        grids
    }

    fn note(&self) -> String {
        let first = self.systems.first().map_or("", |system| system.name.as_str());
        format!(
            "Scores in percent. + and -: better or worse than {first} on the same records, p < 0.05 (paired \
             randomisation). Published rows ({}) are on KILT's own data and source.",
            self.published
        )
    }

    /// Formats the comparison.
    pub fn write(&self, form: Form) -> String {
        let note = self.note();
        match form {
            Form::Text => text(&self.grids(), &note),
            Form::Markdown => markdown(&self.grids(), &note),
            Form::Latex => latex(&self.grids(), &note),
            Form::Csv => self.csv(),
            Form::Html => super::page::page(self, &note),
        }
    }

    fn csv(&self) -> String {
        let mut text = "system,published,table,dataset,score,difference,p\n".to_owned();
        for table in Table::ALL {
            for system in &self.systems {
                for task in &system.tasks {
                    let Some(score) = system.score(table, &task.name) else { continue };
                    let (difference, p) =
                        score.difference.map_or_else(Default::default, |(difference, p)| {
                            (format!("{difference:.6}"), format!("{p:.6}"))
                        });
                    let _ = writeln!(
                        text,
                        "{},false,{},{},{:.6},{difference},{p}",
                        quoted(&system.name),
                        quoted(table.title()),
                        quoted(&task.name),
                        score.mean
                    );
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
        text
    }
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
    use sporran_kilt::Dataset;

    use super::*;
    use crate::compare::{Cost, Score, System, Task};

    /// Two runs over NQ, the second significantly better.
    pub(in crate::compare) fn comparison() -> Comparison {
        let task = |mean: f64, difference| Task {
            name: "nq".into(),
            dataset: Some(Dataset::Nq),
            records: 10,
            metric: Dataset::Nq.metric(),
            answer: Some(Score { mean, difference }),
            kilt: Some(Score { mean: mean / 2.0, difference: None }),
            r_precision: Some(Score { mean: 0.5, difference: None }),
            recall: vec![(1, 0.5), (5, 0.75)],
            seconds: Some(2.0),
            answered: 10,
            tokens: 25,
        };
        let system = |name: &str, mean, difference| System {
            name: name.into(),
            run: "runs/x".into(),
            tasks: vec![task(mean, difference)],
            cost: Cost { seconds: 2.0, records: 10, tokens: 25, peak_memory_bytes: 3 << 20, threads: 2 },
        };
        let systems = vec![system("a_b", 0.25, None), system("c<d", 0.5, Some((0.25, 0.01)))];
        Comparison { systems, published: published::SOURCE }
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
        assert!(!text.contains("BLINK [published]") && text.contains("BLINK + flair [published]"));
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
    }

    #[test]
    fn forms_have_names() {
        assert_eq!("latex".parse(), Ok(Form::Latex));
        assert!("pdf".parse::<Form>().unwrap_err().contains("found `pdf`"));
    }
}
