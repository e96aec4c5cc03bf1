//! Machines in a list, reached by ssh: a worker on each, with blocks by turns.
//!
//! The plan and its files are found on a shared file system, or are brought below a folder by rsync, each at its whole
//! path; then results are brought back the same way on each request. A worker is in a session of its
//! own, so that it goes on when the connection ends.

use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::engine::{Alive, Engine, EngineError, Work, said, shell_line, word};

/// The engine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Hosts {
    /// As ssh knows them.
    pub hosts: Vec<String>,
    /// The ssh that is called, with its arguments.
    pub ssh: Vec<String>,
    /// The folder there below which files are brought; absent where the file system is shared.
    pub stage: Option<PathBuf>,
}

impl Hosts {
    /// The machines in a text: one on each line, `#` starts a remark.
    #[must_use]
    pub fn listed(text: &str) -> Vec<String> {
        let word = |line: &str| line.split('#').next().unwrap_or_default().trim().to_owned();
        text.lines().map(word).filter(|host| !host.is_empty()).collect()
    }

    fn on(&self, host: &str, script: &str) -> Result<String, EngineError> {
        // A name that begins like an option would be one.
        if host.starts_with('-') {
            return Err(EngineError::Unfit(format!("`{host}` is no name of a machine")));
        }
        let mut words = self.ssh.clone();
        words.extend([host.to_owned(), "sh".into()]);
        said(&words, script)
    }

    fn rsync(&self, from: &[String], to: String, flags: &str) -> Result<(), EngineError> {
        let mut words = vec!["rsync".to_owned(), flags.into(), "-e".into(), shell_line(&self.ssh)?];
        words.extend_from_slice(from);
        words.push(to);
        said(&words, "").map(drop)
    }

    /// Where a path is on the machines.
    fn there(&self, path: &Path) -> PathBuf {
        match &self.stage {
            Some(stage) => stage.join(path.strip_prefix("/").unwrap_or(path)),
            None => path.into(),
        }
    }

    fn start(&self, host: &str, work: &Work, blocks: &str) -> Result<String, EngineError> {
        let there = |path: &Path| word(&self.there(path));
        let (out, folder) = (there(&work.out)?, there(&work.folder)?);
        if let Some(stage) = &self.stage {
            self.on(host, &format!("mkdir -p {}\n", shell_line(&[word(stage)?])?))?;
            let mut files = vec![word(&work.worker)?, word(&work.plan)?];
            files.extend(work.files.iter().map(|f| word(f)).collect::<Result<Vec<_>, _>>()?);
            self.rsync(&files, format!("{host}:{}/", word(stage)?), "-aRL")?;
        }
        let mut words = vec![there(&work.worker)?, "worker".into(), there(&work.plan)?];
        words.extend(["--no-progress", "--block", blocks, "--out", &out].map(String::from));
        if let Some(stage) = &self.stage {
            words.extend(["--root".into(), word(stage)?]);
        }
        let log = format!("{out}/logs-{}.txt", blocks.split([',', '-']).next().unwrap_or_default());
        let script = format!(
            "mkdir -p {out} {folder} && cd {folder} || exit 2\n\
             setsid nohup {worker} </dev/null >>{log} 2>&1 &\n\
             echo $!\n",
            out = shell_line(&[&out])?,
            folder = shell_line(&[&folder])?,
            worker = shell_line(&words)?,
            log = shell_line(&[log])?,
        );
        let answer = self.on(host, &script)?;
        let pid = answer.trim();
        let is_number = !pid.is_empty() && pid.bytes().all(|b| b.is_ascii_digit());
        let refused = || EngineError::Unfit(format!("{host} did not say what it started"));
        is_number.then(|| format!("{pid}@{host}")).ok_or_else(refused)
    }
}

/// Process and machine of a job.
fn parted(job: &str) -> Result<(&str, &str), EngineError> {
    let refused = || EngineError::Unfit(format!("`{}` is no job here", crate::foreign::plain(job)));
    let (pid, host) = job.split_once('@').ok_or_else(refused)?;
    if pid.is_empty() || !pid.bytes().all(|b| b.is_ascii_digit()) {
        return Err(refused());
    }
    Ok((pid, host))
}

impl Engine for Hosts {
    fn submit(&self, work: &Work) -> Result<Vec<String>, EngineError> {
        let most = work.at_once.map_or(usize::MAX, |n| n as usize);
        let hosts: Vec<&String> = self.hosts.iter().take(most).collect();
        let parts = work.blocks.dealt(hosts.len());
        let start =
            |(host, part): (&&String, &super::Selection)| self.start(host, work, &part.to_string());
        hosts.iter().zip(&parts).map(start).collect()
    }

    fn poll(&self, jobs: &[String], out: &Path) -> Result<Option<Alive>, EngineError> {
        let mut alive = Alive::default();
        for job in jobs {
            let (pid, host) = parted(job)?;
            // Asked first: what ends in between has written its result before it is brought.
            let state =
                self.on(host, &format!("kill -0 {pid} 2>/dev/null && echo alive || :\n"))?;
            alive.running += u32::from(state.contains("alive"));
            if self.stage.is_some() {
                let from = format!("{host}:{}/", word(&self.there(out))?);
                self.rsync(&[from], format!("{}/", word(out)?), "-a")?;
            }
        }
        Ok(Some(alive))
    }

    fn cancel(&self, jobs: &[String]) -> Result<(), EngineError> {
        for job in jobs {
            let (pid, host) = parted(job)?;
            self.on(host, &format!("kill -TERM -- -{pid} 2>/dev/null || :\n"))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_machines_have_remarks() {
        assert_eq!(Hosts::listed("a\n\n# none\n b # fast\n"), ["a", "b"]);
        assert!(parted("12@node").is_ok() && parted("-1@node").is_err() && parted("12").is_err());
        let engine = Hosts { hosts: vec![], ssh: vec!["false".into()], stage: Some("/s".into()) };
        assert_eq!(engine.there(Path::new("/a/b")), Path::new("/s/a/b"));
        assert!(engine.on("-oProxyCommand=x", "").unwrap_err().to_string().contains("no name"));
    }
}
