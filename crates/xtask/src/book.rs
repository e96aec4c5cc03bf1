//! The pages of the repository as one book: their order, whether every link in them leads somewhere, and a folder
//! that mdBook can read.
//!
//! Pages keep their places relative to each other, so that a link is right in the tree, on a forge and in the book.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Component, Path, PathBuf};

use anyhow::Context as _;
use pulldown_cmark::{Event, Parser, Tag, TagEnd};

use crate::write;

/// Where the book is put together and built, from the repository's root.
const BOOK: &str = "target/book";

/// The parts in the order of reading: a title, and the pages or the folders of pages.
const PARTS: [(&str, &[&str]); 8] = [
    ("", &["README.md"]),
    ("The first hunt", &["docs/guide.md"]),
    ("How it reaches a conclusion", &["docs/explain.md", "docs/core-model.md"]),
    ("The gallery", &["docs/gallery.md", "cases"]),
    ("Every command", &["docs"]),
    ("Every mechanism and its physics", &["docs/hazards", "docs/probes", "docs/machines.md"]),
    ("The method, for those who doubt", &["docs/scale.md", "docs/adr", "profiles"]),
    (
        "To build on it",
        &["CONTRIBUTING.md", "ARCHITECTURE.md", "FORMAT.md", "SECURITY.md", "CHANGELOG.md"],
    ),
];

/// The pages of the repository with their texts, by their places from its root.
pub struct Pages(BTreeMap<PathBuf, String>);

/// Text of a page as links see it.
struct Outline {
    title: String,
    anchors: BTreeSet<String>,
    links: Vec<String>,
}

impl Pages {
    /// Reads all pages that belong into the book.
    pub fn read(root: &Path) -> anyhow::Result<Self> {
        let mut pages = BTreeMap::new();
        let mut folders = vec![PathBuf::new()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(root.join(&folder)).context("cannot list the pages")? {
                let entry = entry?;
                let place = folder.join(entry.file_name());
                let name = entry.file_name().to_string_lossy().into_owned();
                if entry.file_type()?.is_dir() {
                    // Of folders at the top, those with pages; nowhere what a build has made.
                    let is_known = folder.components().next().is_some()
                        || ["cases", "docs", "profiles"].contains(&name.as_str());
                    if is_known && !["build", "target"].contains(&name.as_str()) {
                        folders.push(place);
                    }
                } else if place.extension().is_some_and(|ending| ending == "md") {
                    let text = fs::read_to_string(root.join(&place))
                        .with_context(|| format!("cannot read {}", place.display()))?;
                    pages.insert(place, text);
                }
            }
        }
        Ok(Self(pages))
    }

    /// Links that lead nowhere, each with its page.
    #[must_use]
    pub fn broken(&self, root: &Path) -> Vec<String> {
        let outlines: BTreeMap<_, _> =
            self.0.iter().map(|(at, text)| (at, outline(text))).collect();
        let mut broken = Vec::new();
        for (page, of) in &outlines {
            for link in of.links.iter().filter(|link| is_of_the_tree(link)) {
                let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
                let to = if file.is_empty() { Some((*page).clone()) } else { resolved(page, file) };
                let leads = to.is_some_and(|to| match outlines.get(&to) {
                    Some(of) => anchor.is_empty() || of.anchors.contains(anchor),
                    None => root.join(to).exists(),
                });
                if !leads {
                    broken.push(format!("{}: {link}", page.display()));
                }
            }
        }
        broken
    }

    /// The pages in the order of reading, by parts; each once.
    fn parts(&self) -> Vec<(&'static str, Vec<&PathBuf>)> {
        let named: BTreeSet<&Path> = PARTS.iter().flat_map(|(_, of)| *of).map(Path::new).collect();
        let pages = |name: &&str| -> Vec<&PathBuf> {
            let name = Path::new(name);
            let is_here = |page: &&PathBuf| match name.extension() {
                Some(_) => page.as_path() == name,
                // The pages of `docs` itself are those of commands.
                None if name == Path::new("docs") => {
                    page.parent() == Some(name) && !named.contains(page.as_path())
                }
                None => page.starts_with(name),
            };
            self.0.keys().filter(is_here).collect()
        };
        PARTS.iter().map(|(title, of)| (*title, of.iter().flat_map(pages).collect())).collect()
    }

    /// Writes the folder that mdBook reads: its settings, the order, the pages, and the files that pages link to.
    pub fn assemble(&self, root: &Path) -> anyhow::Result<()> {
        let book = root.join(BOOK);
        let source = book.join("src");
        if source.exists() {
            fs::remove_dir_all(&source).context("cannot make the book anew")?;
        }
        // Nothing is preprocessed: a README would be renamed under the links that lead to it.
        let settings = "[book]\ntitle = \"stallscope\"\nsrc = \"src\"\n\n[build]\nuse-default-preprocessors = false\n";
        write(&book.join("book.toml"), settings)?;
        write(&source.join("SUMMARY.md"), &self.summary())?;
        for (page, text) in &self.0 {
            write(&source.join(page), text)?;
            for link in outline(text).links.iter().filter(|link| is_of_the_tree(link)) {
                let file = link.split('#').next().unwrap_or_default();
                let Some(to) = resolved(page, file).filter(|to| root.join(to).is_file()) else {
                    continue;
                };
                if !self.0.contains_key(&to) {
                    let copy = source.join(&to);
                    fs::create_dir_all(copy.parent().context("a link to the root")?)?;
                    fs::copy(root.join(&to), &copy)
                        .with_context(|| format!("cannot copy {}", to.display()))?;
                }
            }
        }
        Ok(())
    }

    fn summary(&self) -> String {
        let mut text = String::from("# Summary\n");
        for (title, pages) in self.parts() {
            if !title.is_empty() {
                let _ = write!(text, "\n# {title}\n\n");
            }
            for page in pages {
                let name = outline(&self.0[page]).title;
                let _ = writeln!(
                    text,
                    "{}[{name}]({})",
                    if title.is_empty() { "" } else { "- " },
                    page.display()
                );
            }
        }
        text
    }
}

/// Whether a link stays in the tree.
fn is_of_the_tree(link: &str) -> bool {
    !link.contains("://") && !link.starts_with("mailto:")
}

/// The file that a link of a page names, from the root; `None` where it leaves the tree.
fn resolved(page: &Path, file: &str) -> Option<PathBuf> {
    let mut to = page.parent()?.to_owned();
    for part in Path::new(file).components() {
        match part {
            Component::ParentDir => to.pop().then_some(())?,
            Component::Normal(name) => to.push(name),
            Component::CurDir => {}
            Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(to)
}

/// Reads a page's first heading, the anchors of all headings, and its links.
fn outline(text: &str) -> Outline {
    let mut outline = Outline { title: String::new(), anchors: BTreeSet::new(), links: Vec::new() };
    let mut heading: Option<String> = None;
    for event in Parser::new_ext(text, pulldown_cmark::Options::ENABLE_TABLES) {
        match event {
            Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
            Event::End(TagEnd::Heading(_)) => {
                let text = heading.take().unwrap_or_default();
                outline.anchors.insert(anchor(&text));
                if outline.title.is_empty() {
                    outline.title = text;
                }
            }
            Event::Text(part) | Event::Code(part) => {
                if let Some(heading) = &mut heading {
                    heading.push_str(&part);
                }
            }
            Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                outline.links.push(dest_url.into_string());
            }
            _ => {}
        }
    }
    outline
}

/// What a heading is called in links: lower case, words joined by hyphens, without other signs.
fn anchor(heading: &str) -> String {
    let kept = |c: char| match c {
        ' ' => Some('-'),
        '-' | '_' => Some(c),
        _ => c.is_alphanumeric().then_some(c),
    };
    heading.to_lowercase().chars().filter_map(kept).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages(of: &[(&str, &str)]) -> Pages {
        Pages(of.iter().map(|(at, text)| (PathBuf::from(at), (*text).to_owned())).collect())
    }

    #[test]
    fn links_that_lead_nowhere_are_told() {
        let pages = pages(&[
            (
                "docs/a.md",
                "# A\n[b](b.md#why-it-is) [up](../README.md) [not](c.md) [at](b.md#no) [self](#a)",
            ),
            (
                "docs/b.md",
                "# `B`\n## Why: it *is*\n[far](https://example.org/x.md) [out](../../etc/passwd)",
            ),
            ("README.md", "# R\n```\n[code](no.md)\n```\n"),
        ]);
        let nowhere = tempfile::tempdir().unwrap();
        assert_eq!(
            pages.broken(nowhere.path()),
            ["docs/a.md: c.md", "docs/a.md: b.md#no", "docs/b.md: ../../etc/passwd"]
        );
    }

    #[test]
    fn every_page_of_the_repository_is_in_the_book_once() {
        let pages = Pages::read(&crate::root().unwrap()).unwrap();
        let mut in_book: Vec<_> = pages.parts().into_iter().flat_map(|(_, of)| of).collect();
        assert_eq!(in_book[0], Path::new("README.md"));
        in_book.sort();
        assert_eq!(in_book, pages.0.keys().collect::<Vec<_>>());
    }
}
