//! Tables of entity and relation names.

use std::{borrow::Cow, path::Path};

use crate::{Error, Result, jsonl};

/// A line of a table of names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamesRow<'a> {
    /// The id, such as `Q42`.
    pub id: &'a str,
    /// The label.
    pub label: Cow<'a, str>,
    /// The title of its page; empty without that column.
    pub title: &'a str,
    /// Its class; empty without that column.
    pub class: &'a str,
    /// Other names.
    pub aliases: Vec<&'a str>,
    /// Its description and the beginning of its page, if the table has them.
    pub descriptions: Vec<Cow<'a, str>>,
}

/// The columns that a table's first line names.
struct Columns {
    id: usize,
    label: usize,
    title: Option<usize>,
    class: Option<usize>,
    aliases: Option<usize>,
    texts: [Option<usize>; 2],
}

impl Columns {
    /// None if the line has no id and no label column, so that it is a row.
    fn of(header: &str) -> Option<Self> {
        let header: Vec<&str> = header.split('\t').map(str::trim).collect();
        let column =
            |names: &[&str]| names.iter().find_map(|name| header.iter().position(|column| column == name));
        Some(Self {
            // If both exist, `id` is a row number.
            id: column(&["qid", "id"])?,
            label: column(&["label", "name"])?,
            title: column(&["title"]),
            class: column(&["type", "ent_type"]),
            aliases: column(&["aliases"]),
            texts: [column(&["description"]), column(&["extract"])],
        })
    }

    fn row<'a>(&self, cells: &[&'a str]) -> NamesRow<'a> {
        let cell = |at: Option<usize>| at.and_then(|at| cells.get(at)).copied().unwrap_or_default();
        let aliases = cell(self.aliases).split('|').map(str::trim).filter(|alias| !alias.is_empty());
        NamesRow {
            id: cell(Some(self.id)),
            label: unquoted(cell(Some(self.label))),
            title: cell(self.title),
            class: cell(self.class),
            aliases: aliases.collect(),
            descriptions: self.texts.into_iter().flatten().map(|at| unquoted(cell(Some(at)))).collect(),
        }
    }
}

/// Removes the quotes of a cell. CoDEx quotes cells that contain quotes.
fn unquoted(cell: &str) -> Cow<'_, str> {
    let inner = cell.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    inner.map_or(Cow::Borrowed(cell), |inner| inner.replace("\"\"", "\"").into())
}

/// Reads a tab-separated table, row by row. The first line may name the columns: `id` or `qid`, `label` or
/// `name`, and optionally `title`, `type` or `ent_type`, `description`, `extract`, and `aliases` separated by
/// `|`. Labels and texts may be quoted in such a table. Without column names each row is an id, a label and
/// aliases, as in Wikidata5M.
///
/// # Errors
/// [`Error::Io`] and other read errors; [`Error::Record`] for a row without an id or a label.
pub fn read_names(path: &Path, mut take: impl FnMut(NamesRow<'_>)) -> Result<()> {
    let mut reader = jsonl::open(path)?;
    let mut columns = None;
    let mut is_first = true;
    while let Some((line, bytes)) = reader.next_line()? {
        let text = jsonl::utf8(path, line, bytes)?;
        if std::mem::take(&mut is_first) {
            columns = Columns::of(text);
            if columns.is_some() {
                continue;
            }
        }
        let cells: Vec<&str> = text.split('\t').map(str::trim).collect();
        let row = match &columns {
            Some(columns) => columns.row(&cells),
            None => NamesRow {
                id: cells.first().copied().unwrap_or_default(),
                label: cells.get(1).copied().unwrap_or_default().into(),
                aliases: cells.iter().skip(2).copied().filter(|alias| !alias.is_empty()).collect(),
                ..NamesRow::default()
            },
        };
        for (field, value) in [("id", row.id), ("label", row.label.as_ref())] {
            if value.is_empty() {
                return Err(Error::record(path, line, field, "expected a name between tabs, found nothing"));
            }
        }
        take(row);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Id, label, title, class and aliases.
    type Row = ([String; 4], Vec<String>);

    fn row(cells: [&str; 4], aliases: &[&str]) -> Row {
        (cells.map(str::to_owned), aliases.iter().map(|&alias| alias.to_owned()).collect())
    }

    fn read(text: &str) -> Result<Vec<Row>> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("names.tsv");
        std::fs::write(&path, text).unwrap();
        let mut rows = Vec::new();
        read_names(&path, |NamesRow { id, label, title, class, aliases, .. }| {
            rows.push(row([id, &label, title, class], &aliases));
        })?;
        Ok(rows)
    }

    #[test]
    fn columns_are_found_by_the_first_line() {
        let rows =
            read("id\tqid\tname\tent_type\textract\n0\tQ1\tAnn\thuman\t\"She\"\n1\tQ2\tBob\n").unwrap();
        assert_eq!(rows, [row(["Q1", "Ann", "", "human"], &[]), row(["Q2", "Bob", "", ""], &[])]);
        let rows =
            read("id\tlabel\ttitle\ttype\taliases\nQ1\tAnn\tAnn (singer)\thuman\tAnnie| Nan|\n").unwrap();
        assert_eq!(rows, [row(["Q1", "Ann", "Ann (singer)", "human"], &["Annie", "Nan"])]);
        // Without column names, in Wikidata5M's layout, `|` is an ordinary character.
        let rows = read("Q1\tAnn\tA|B\t\tNan\r\n").unwrap();
        assert_eq!(rows, [row(["Q1", "Ann", "", ""], &["A|B", "Nan"])]);
    }

    #[test]
    fn quoted_cells_are_read_as_they_were() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("names.tsv");
        std::fs::write(
            &path,
            "qid\textract\tname\tdescription\nQ1\t\"She \"\tAnn\ta person\nQ2\t\t\"Bob \"\"B\"\" Low\"\n",
        )
        .unwrap();
        let mut rows = Vec::new();
        read_names(&path, |row| {
            let texts: Vec<String> = row.descriptions.iter().map(|text| text.to_string()).collect();
            rows.push((row.label.to_string(), texts.join("/")));
        })
        .unwrap();
        let expected = [("Ann", "a person/She "), ("Bob \"B\" Low", "/")];
        assert_eq!(rows, expected.map(|(label, texts)| (label.to_owned(), texts.to_owned())));
    }

    #[test]
    fn a_row_without_a_label_is_an_error() {
        for (text, expected) in [
            ("Q1\tAnn\nQ2\n", "names.tsv:2: field `label`: expected a name"),
            ("id\tlabel\n\tAnn\n", "names.tsv:2: field `id`: expected a name"),
        ] {
            let message = read(text).unwrap_err().to_string();
            assert!(message.contains(expected), "{message}");
        }
    }
}
