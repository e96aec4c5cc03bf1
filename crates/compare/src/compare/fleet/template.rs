//! Any other engine: a command line of one's own that hands out one task.

use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::engine::{Alive, Engine, EngineError, Task, Work, said, shell_line, word};
use crate::compare::sweep::fill;

/// Tasks that are handed out one by one.
const MOST_TASKS: usize = 1000;

/// The engine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Template {
    /// A shell's command for each task.
    pub template: String,
}

impl Template {
    fn command(&self, work: &Work, number: usize, task: &Task) -> Result<String, EngineError> {
        let path = |path: &Path| shell_line(&[word(path)?]);
        let (program, plan, out) = (path(&work.worker)?, path(&work.plan)?, path(&work.out)?);
        let (blocks, limit_s) = (task.blocks.to_string(), task.limit_s.to_string());
        let worker = format!("{program} worker {plan} --no-progress --block {blocks} --out {out}");
        let number = number.to_string();
        let values = [
            ("worker", worker.as_str()),
            ("plan", &plan),
            ("blocks", &blocks),
            ("out", &out),
            ("task", &number),
            ("limit_s", &limit_s),
        ];
        fill(&self.template, &values).map_err(|error| EngineError::Unfit(error.to_string()))
    }
}

impl Engine for Template {
    fn submit(&self, work: &Work) -> Result<Vec<String>, EngineError> {
        let most = work.at_once.map_or(MOST_TASKS, |n| n as usize);
        let commands: Vec<String> = (0..)
            .zip(work.tasks(most))
            .map(|(number, task)| self.command(work, number, &task))
            .collect::<Result<_, _>>()?;
        let run = |command: String| {
            let answer = said(&["/bin/sh".into(), "-c".into(), command], "")?;
            let last = answer.lines().rfind(|l| !l.trim().is_empty()).unwrap_or_default();
            Ok(crate::foreign::plain(last.trim()).into_owned())
        };
        commands.into_iter().map(run).collect()
    }

    fn poll(&self, _: &[String], _: &Path) -> Result<Option<Alive>, EngineError> {
        Ok(None)
    }

    fn cancel(&self, jobs: &[String]) -> Result<(), EngineError> {
        let jobs = jobs.join(", ");
        let what =
            "only the engine behind --template knows how to cancel; what it said of the jobs";
        Err(EngineError::Unfit(format!("{what}: {jobs}")))
    }
}
