//! What a case is, read from `case.toml` in its folder; all of them are part of the program.
//!
//! One format for both kinds: pairs of the gallery, small C programs that are built and explained
//! here, and cases of the source tree, which take more than a C compiler and say what to type there.

use anyhow::Context as _;
use include_dir::{Dir, include_dir};
use serde::Deserialize;
use stallscope::explain::Answer;

static GALLERY: Dir = include_dir!("$CARGO_MANIFEST_DIR/cases/gallery");

// `cases/` of this crate holds links, so that its package has what it includes.
/// Of cases in the source tree, the definition is all that is part of the program.
static IN_TREE: [(&str, &str); 4] = [
    ("go-untouched-code", include_str!("../../../cases/go-untouched-code.toml")),
    ("index-codec", include_str!("../../../cases/index-codec.toml")),
    ("rep-strategy", include_str!("../../../cases/rep-strategy.toml")),
    ("upstream-index-decoder", include_str!("../../../cases/upstream-index-decoder.toml")),
];

/// One case.
#[derive(Debug)]
pub struct Case {
    /// The name of its folder, and on the command line.
    pub id: &'static str,
    pub definition: Definition,
}

/// What `case.toml` says.
#[derive(Debug, Deserialize)]
pub struct Definition {
    /// What the two arms are, in a few words.
    pub title: String,
    /// The question, as it was first asked.
    pub question: String,
    /// Where and when that was.
    pub asked: String,
    #[serde(flatten)]
    pub kind: Kind,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub enum Kind {
    Gallery(Box<Gallery>),
    Tree(Tree),
}

/// Two pairs of C programs: `case.c` and `trap.c`, with `AFTER` defined as 0 and 1.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gallery {
    /// What the compiler is told.
    #[serde(default = "optimised")]
    pub flags: Vec<String>,
    /// How many processors a run takes.
    #[serde(default = "one")]
    pub threads: usize,
    /// The pair of the question.
    pub case: Pair,
    /// A pair like it with another cause, of which the story must not be told.
    pub trap: Pair,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pair {
    /// What both programs are run with.
    pub arguments: Vec<String>,
    /// What the compiler is told for one of them alone.
    #[serde(default)]
    pub before_flags: Vec<String>,
    #[serde(default)]
    pub after_flags: Vec<String>,
    /// The function that pays; traps name none.
    pub function: Option<String>,
    /// What may be told as the cause.
    pub says: Vec<Answer>,
}

/// Commands to be typed where the source tree is.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tree {
    /// What it takes.
    pub needs: String,
    pub steps: Vec<String>,
}

fn optimised() -> Vec<String> {
    ["-O2", "-g"].map(str::to_owned).to_vec()
}

fn one() -> usize {
    1
}

impl Case {
    /// A file of a gallery case.
    pub fn source(&self, name: &str) -> Option<&'static str> {
        GALLERY.get_file(format!("{}/{name}", self.id))?.contents_utf8()
    }

    fn read(id: &'static str, text: &str) -> anyhow::Result<Self> {
        let definition = toml::from_str(text).with_context(|| format!("{id}/case.toml"))?;
        Ok(Self { id, definition })
    }
}

/// All cases, those of the source tree first, each kind by name.
///
/// # Errors
/// When a definition is wrong, which a test rules out.
pub fn all() -> anyhow::Result<Vec<Case>> {
    let gallery = GALLERY.dirs().filter_map(|folder| {
        let id = folder.path().to_str()?;
        Some((id, folder.get_file(folder.path().join("case.toml"))?.contents_utf8()?))
    });
    let mut gallery: Vec<(&str, &str)> = gallery.collect();
    gallery.sort_unstable();
    IN_TREE.into_iter().chain(gallery).map(|(id, text)| Case::read(id, text)).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;

    #[test]
    fn every_case_is_well_formed_documented_and_has_its_files() {
        let cases = all().unwrap();
        let ids: BTreeSet<_> = cases.iter().map(|c| c.id).collect();
        assert_eq!(ids.len(), cases.len());
        let tree = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../cases");
        let pages = [
            include_str!("../../../../../docs/case.md"),
            include_str!("../../../../../docs/gallery.md"),
        ];
        for case in &cases {
            let (id, definition) = (case.id, &case.definition);
            assert!(definition.title.len() <= 54, "{id}: the title does not fit");
            assert!(definition.asked.contains("(20"), "{id}: asked when?");
            let is_pair = matches!(definition.kind, Kind::Gallery(_));
            let (page, folder) = match is_pair {
                true => (pages[1], tree.join("gallery").join(id)),
                false => (pages[0], tree.join(id)),
            };
            let shown = format!("{id}/README.md");
            assert!(page.contains(&shown), "docs/ lacks {shown}");
            assert!(
                !is_pair || page.contains(&definition.question),
                "docs/gallery.md lacks {id}'s"
            );
            let mut files = vec!["README.md", "case.toml"];
            files.extend(is_pair.then_some(["case.c", "trap.c"]).into_iter().flatten());
            for file in files {
                assert!(folder.join(file).is_file(), "{id} lacks {file}");
            }
        }
        let folders = std::fs::read_dir(tree.join("gallery")).unwrap();
        let pairs = cases.iter().filter(|c| matches!(c.definition.kind, Kind::Gallery(_)));
        assert_eq!(
            folders.count(),
            pairs.count(),
            "a folder has no case.toml, or came after this file was compiled"
        );
    }

    #[test]
    fn a_trap_may_not_be_called_what_its_case_is_called() {
        for case in all().unwrap() {
            let Kind::Gallery(pairs) = &case.definition.kind else { continue };
            assert!(pairs.case.function.is_some() && pairs.trap.function.is_none(), "{}", case.id);
            let shared = |says: &&Answer| pairs.case.says.contains(says) && !says.is_open();
            let both: Vec<_> = pairs.trap.says.iter().filter(shared).collect();
            assert!(!pairs.case.says.is_empty() && both.is_empty(), "{}: {both:?}", case.id);
        }
    }
}
