//! `git bisect` in a worktree of its own: which commit is next, and what is left in the end.
//!
//! The state of a bisection belongs to its worktree, so neither the user's checkout nor a bisection that goes on there
//! is touched. The worktree is gone when this is dropped.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

use super::{BisectError, Commit, Word};
use crate::foreign::plain_bytes;

/// What another git, which may have called us, has set for its own use.
const OF_ANOTHER_GIT: [&str; 4] =
    ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY"];

/// Where a bisection stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Stand {
    /// This commit is to be judged; so many more are about to follow it.
    Next {
        /// The commit that lies in the worktree.
        commit: Commit,
        /// How many more git expects.
        steps_left: u32,
    },
    /// It is the first bad one.
    Found(Commit),
    /// The first bad one is among these, none of which could be told apart.
    Among(Vec<Commit>),
}

/// A worktree of a repository.
#[derive(Debug)]
pub struct Repository {
    here: PathBuf,
    tree: PathBuf,
    /// The last commit that is good, as it was named.
    pub good: Commit,
    /// The commit that is bad.
    pub bad: Commit,
}

impl Repository {
    /// Looks both commits up in the repository around `here` and makes a worktree of it at `tree`, which must not
    /// exist.
    ///
    /// # Errors
    /// When there is no repository, a name is no commit, or the good one does not lie before the bad one.
    pub fn open(here: &Path, tree: &Path, good: &str, bad: &str) -> Result<Self, BisectError> {
        git(here, &["rev-parse", "--git-dir"])?;
        let [good, bad] = [("--good", good), ("--bad", bad)].map(|(option, name)| {
            commit(here, name).map_err(|_| {
                BisectError::Commits(format!(
                    "{option} {}: no such commit",
                    plain_bytes(name.as_bytes())
                ))
            })
        });
        let (good, bad) = (good?, bad?);
        remove_leftovers(here);
        if good.id == bad.id
            || git(here, &["merge-base", "--is-ancestor", &good.id, &bad.id]).is_err()
        {
            return Err(BisectError::Commits(format!(
                "the good commit {} does not lie before the bad one, {}: between them there is nothing to search",
                good.short(),
                bad.short()
            )));
        }
        // Made first, so that it is dropped whatever has come of the worktree.
        let found = Self { here: here.into(), tree: tree.into(), good, bad };
        let path = tree.to_string_lossy();
        git(here, &["worktree", "add", "--quiet", "--detach", &path, &found.good.id])?;
        Ok(found)
    }

    /// The worktree.
    #[must_use]
    pub fn tree(&self) -> &Path {
        &self.tree
    }

    /// Puts a commit into the worktree. What builds have left there and git does not know stays, so that the next build
    /// is quick.
    pub(super) fn check_out(&self, commit: &Commit) -> Result<(), BisectError> {
        git(&self.tree, &["checkout", "--quiet", "--force", "--detach", &commit.id]).map(drop)
    }

    pub(super) fn start(&self) -> Result<Stand, BisectError> {
        git(&self.tree, &["reset", "--quiet", "--hard"])?;
        self.stand(&["bisect", "start", &self.bad.id, &self.good.id])
    }

    pub(super) fn mark(&self, word: Word) -> Result<Stand, BisectError> {
        // What a build has changed in files that git knows would be in the way.
        git(&self.tree, &["reset", "--quiet", "--hard"])?;
        let word = match word {
            Word::Good => "good",
            Word::Bad => "bad",
            Word::Skipped => "skip",
        };
        self.stand(&["bisect", word])
    }

    /// The parents of a commit.
    pub(super) fn parents(&self, commit: &Commit) -> Result<Vec<String>, BisectError> {
        let line = git(&self.tree, &["rev-list", "--parents", "-n", "1", &commit.id])?;
        Ok(line.split_whitespace().skip(1).map(Into::into).collect())
    }

    /// Runs a command of the bisection and reads what it says.
    fn stand(&self, args: &[&str]) -> Result<Stand, BisectError> {
        let done = run(&self.tree, args)?;
        let said = String::from_utf8_lossy(&done.stdout).into_owned();
        if let Some(line) = said.lines().find(|line| line.ends_with(" is the first bad commit")) {
            let id = line.split_whitespace().next().unwrap_or_default();
            return Ok(Stand::Found(commit(&self.tree, id)?));
        }
        // Git exits with 2 here.
        if said.contains("The first bad commit could be any of:") {
            let ids = said.lines().filter(|line| {
                line.len() >= 40 && line.bytes().all(|byte| byte.is_ascii_hexdigit())
            });
            return Ok(Stand::Among(
                ids.map(|id| commit(&self.tree, id)).collect::<Result<_, _>>()?,
            ));
        }
        if !done.status.success() {
            return Err(failed(args, &done.stderr));
        }
        let steps_left = said
            .split_once("(roughly ")
            .and_then(|(_, rest)| rest.split(' ').next()?.parse().ok())
            .unwrap_or(0);
        Ok(Stand::Next { commit: commit(&self.tree, "HEAD")?, steps_left })
    }
}

/// How the name of a bisection's folder begins; it ends with the number of its process.
const FOLDER: &str = "stallscope-bisect-";

/// A folder for a worktree and the programs that are built from it. The next bisection removes it, should this one be killed.
///
/// # Errors
/// When it cannot be made.
pub fn bisect_folder() -> io::Result<TempDir> {
    let pid = format!("-{}", std::process::id());
    tempfile::Builder::new().prefix(FOLDER).suffix(&pid).tempdir()
}

/// Removes worktrees of bisections that were killed, and their folders. What cannot be removed is somebody else's.
fn remove_leftovers(here: &Path) {
    let Ok(all) = git(here, &["worktree", "list", "--porcelain"]) else { return };
    for tree in all.lines().filter_map(|line| line.strip_prefix("worktree ")) {
        let folder = Path::new(tree).parent();
        let name = folder.and_then(|folder| folder.file_name()?.to_str()?.strip_prefix(FOLDER));
        let pid = name.and_then(|name| name.rsplit_once('-')?.1.parse::<u32>().ok());
        let Some((folder, pid)) = folder.zip(pid) else { continue };
        if !Path::new(&format!("/proc/{pid}")).exists() {
            let _ = run(here, &["worktree", "remove", "--force", "--force", tree]);
            let _ = std::fs::remove_dir_all(folder);
        }
    }
}

impl Drop for Repository {
    fn drop(&mut self) {
        let path = self.tree.to_string_lossy();
        let _ = run(&self.here, &["worktree", "remove", "--force", "--force", &path]);
    }
}

fn commit(folder: &Path, name: &str) -> Result<Commit, BisectError> {
    let name = format!("{name}^{{commit}}");
    let id = git(folder, &["rev-parse", "--verify", "--quiet", "--end-of-options", &name])?;
    let id = id.trim().to_owned();
    let subject = git(folder, &["show", "--no-patch", "--format=%s", &id])?;
    Ok(Commit { subject: subject.trim().to_owned(), id })
}

/// What git prints, as text that is safe to show.
fn git(folder: &Path, args: &[&str]) -> Result<String, BisectError> {
    let done = run(folder, args)?;
    if !done.status.success() {
        return Err(failed(args, &done.stderr));
    }
    Ok(done.stdout.split(|byte| *byte == b'\n').map(plain_bytes).collect::<Vec<_>>().join("\n"))
}

fn failed(args: &[&str], stderr: &[u8]) -> BisectError {
    let lines: Vec<_> = stderr.split(|byte| *byte == b'\n').map(plain_bytes).collect();
    BisectError::Git { command: args.join(" "), said: lines.join(" ").trim().to_owned() }
}

fn run(folder: &Path, args: &[&str]) -> Result<std::process::Output, BisectError> {
    let mut command = Command::new("git");
    // A hook of the user's may not expect to be called for this.
    command.args(["-c", "core.hooksPath=/dev/null", "-c", "advice.detachedHead=false", "-C"]);
    command.arg(folder).args(args).env("LC_ALL", "C").stdin(Stdio::null());
    for name in OF_ANOTHER_GIT {
        command.env_remove(name);
    }
    command.output().map_err(|cause| BisectError::Git {
        command: args.join(" "),
        said: format!("git does not start: {cause}"),
    })
}
