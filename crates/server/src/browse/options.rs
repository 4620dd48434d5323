//! The runs and knowledge bases that a server names.

use std::{path::PathBuf, str::FromStr};

/// A file or a folder with the name under which it is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// The name.
    pub name: String,
    /// The file or the folder.
    pub path: PathBuf,
}

impl FromStr for Named {
    type Err = String;

    /// Reads `NAME=PATH`, or a path whose last part is the name.
    fn from_str(text: &str) -> Result<Self, String> {
        let (name, path) = match text.split_once('=') {
            Some((name, path)) => (name.to_owned(), PathBuf::from(path)),
            None => {
                let path = PathBuf::from(text);
                let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
                (name.unwrap_or_default(), path)
            }
        };
        match name.is_empty() || path.as_os_str().is_empty() {
            true => Err(format!("expected NAME=PATH, found `{text}`")),
            false => Ok(Self { name, path }),
        }
    }
}

/// A knowledge base with what completes its triples.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnowledgeOptions {
    /// The folder or the file of the knowledge base, with its name.
    pub base: Named,
    /// The file of its rules.
    pub rules: Option<PathBuf>,
}

/// The runs and the knowledge bases that the page shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BrowseOptions {
    /// The folders of runs.
    pub runs: Vec<Named>,
    /// The knowledge bases.
    pub knowledge: Vec<KnowledgeOptions>,
}

impl BrowseOptions {
    /// The runs, the knowledge bases, and the rules by the names of these.
    ///
    /// # Errors
    /// A name that is given twice, and rules of a knowledge base that is not named.
    pub fn new(runs: Vec<Named>, bases: Vec<Named>, rules: Vec<Named>) -> Result<Self, String> {
        for (option, all) in [("--run", &runs), ("--kb", &bases), ("--rules", &rules)] {
            for (at, named) in all.iter().enumerate() {
                if all[..at].iter().any(|known| known.name == named.name) {
                    return Err(format!("`{option}`: the name `{}` is given twice", named.name));
                }
            }
        }
        let mut knowledge: Vec<KnowledgeOptions> =
            bases.into_iter().map(|base| KnowledgeOptions { base, rules: None }).collect();
        for Named { name, path } in rules {
            let base = knowledge.iter_mut().find(|found| found.base.name == name);
            base.ok_or_else(|| format!("`--rules`: expected the name of a `--kb`, found `{name}`"))?.rules =
                Some(path);
        }
        Ok(Self { runs, knowledge })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(text: &str) -> Named {
        text.parse().unwrap()
    }

    #[test]
    fn a_name_is_given_or_that_of_the_folder() {
        assert_eq!(named("a=b/c=d"), Named { name: "a".into(), path: "b/c=d".into() });
        assert_eq!(named("runs/first/"), Named { name: "first".into(), path: "runs/first/".into() });
        for wrong in ["", "=x", "x=", "/"] {
            assert!(wrong.parse::<Named>().unwrap_err().starts_with("expected NAME=PATH"), "{wrong}");
        }
    }

    #[test]
    fn rules_belong_to_a_knowledge_base() {
        let options =
            BrowseOptions::new(Vec::new(), vec![named("a=kb")], vec![named("a=rules.tsv")]).unwrap();
        assert_eq!(options.knowledge[0].rules, Some("rules.tsv".into()));
        let twice = BrowseOptions::new(vec![named("a=x"), named("a=y")], Vec::new(), Vec::new());
        assert_eq!(twice.unwrap_err(), "`--run`: the name `a` is given twice");
        let stray = BrowseOptions::new(Vec::new(), vec![named("a=x")], vec![named("b=y")]);
        assert_eq!(stray.unwrap_err(), "`--rules`: expected the name of a `--kb`, found `b`");
    }
}
