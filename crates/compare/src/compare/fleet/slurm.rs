//! Slurm: an array of jobs, each a worker with some blocks; one for each kind of node that is asked for.
//!
//! A job has its node for itself unless `args` say otherwise, a time limit by what the pilot took, and is put back into
//! the queue when its node is lost or its worker is killed. Whether it has done its work the files say: accounting (`sacct`)
//! is not kept on every cluster, the queue (`squeue`) is.

use std::fs;
use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::engine::{Alive, Engine, EngineError, Work, said, shell_line, word};

/// Jobs of an array: below Slurm's own `MaxArraySize` of 1001.
const MOST_TASKS: usize = 1000;
/// How often a job may fail before it is left.
const RESTARTS: u32 = 3;
/// How `squeue` says that a job has never been heard of, or no more.
const FORGOTTEN: &str = "Invalid job id";

/// The engine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Slurm {
    /// More arguments for `sbatch`, partition, constraint, account, for an array each. The blocks are dealt out by
    /// their numbers: one that is handed out once more goes to the same array.
    pub args: Vec<Vec<String>>,
}

impl Slurm {
    /// What is given to `sbatch` for one array, its words and the script; the blocks of each task are in a file then.
    fn job(
        work: &Work,
        array: usize,
        args: &[String],
    ) -> Result<(Vec<String>, String), EngineError> {
        let tasks = work.tasks(MOST_TASKS);
        let limit_s = tasks.iter().map(|task| task.limit_s).max().unwrap_or_default();
        let at_once = work.at_once.map_or_else(String::new, |n| format!("%{n}"));
        let out = word(&work.out)?;
        let mut words: Vec<String> = [
            "sbatch",
            "--parsable",
            "--requeue",
            "--ntasks=1",
            "--exclusive",
            "--open-mode=append",
        ]
        .map(String::from)
        .into();
        words.push("--job-name=stallscope".into());
        words.push(format!("--array=0-{}{at_once}", tasks.len().saturating_sub(1)));
        words.push(format!("--time={}", limit_s.div_ceil(60)));
        words.push(format!("--chdir={}", word(&work.folder)?));
        words.push(format!("--output={out}/logs/%A_%a.txt"));
        words.extend(args.iter().cloned());
        let lines: String = tasks.iter().map(|task| task.blocks.to_string() + "\n").collect();
        let list = work.out.join(format!("tasks-{}-{array}.txt", std::process::id()));
        let quoted = |path: &Path| shell_line(&[word(path)?]);
        let script = format!(
            "#!/bin/sh\n\
             blocks=$(sed -n \"$((SLURM_ARRAY_TASK_ID + 1))p\" {list}) || exit 2\n\
             {worker} worker {plan} --no-progress --block \"$blocks\" --out {out}\n\
             code=$?\n\
             # Killed, or its machine is not well: another one may do it.\n\
             if [ $code -ne 0 ] && [ \"${{SLURM_RESTART_COUNT:-0}}\" -lt {RESTARTS} ]; then\n  \
             scontrol requeue \"${{SLURM_ARRAY_JOB_ID}}_$SLURM_ARRAY_TASK_ID\"\n\
             fi\n\
             exit $code\n",
            list = quoted(&list)?,
            worker = quoted(&work.worker)?,
            plan = quoted(&work.plan)?,
            out = quoted(&work.out)?,
        );
        fs::create_dir_all(work.out.join("logs"))
            .and_then(|()| fs::write(&list, lines))
            .map_err(|cause| EngineError::File { path: list, cause })?;
        Ok((words, script))
    }

    /// Hands out one array; its number.
    fn array(work: &Work, array: usize, args: &[String]) -> Result<String, EngineError> {
        let (words, script) = Self::job(work, array, args)?;
        let answer = said(&words, &script)?;
        // Behind a semicolon stands the cluster.
        let id = answer.trim().split(';').next().unwrap_or_default().to_owned();
        let is_number = !id.is_empty() && id.bytes().all(|b| b.is_ascii_digit());
        let refused = || {
            EngineError::Unfit(format!(
                "sbatch gave no job: {}",
                crate::foreign::plain(answer.trim())
            ))
        };
        is_number.then_some(id).ok_or_else(refused)
    }
}

impl Engine for Slurm {
    fn submit(&self, work: &Work) -> Result<Vec<String>, EngineError> {
        let none = [Vec::new()];
        let arrays = if self.args.is_empty() { &none[..] } else { &self.args };
        let mut jobs = Vec::new();
        for (array, args) in arrays.iter().enumerate() {
            let blocks = work.blocks.every(arrays.len(), array);
            if blocks.blocks().is_empty() {
                continue;
            }
            match Self::array(&Work { blocks, ..work.clone() }, array, args) {
                Ok(job) => jobs.push(job),
                // Nobody would know of the others.
                Err(error) if jobs.is_empty() => return Err(error),
                Err(error) => return self.cancel(&jobs).and(Err(error)),
            }
        }
        Ok(jobs)
    }

    fn poll(&self, jobs: &[String], _: &Path) -> Result<Option<Alive>, EngineError> {
        let list = jobs.join(",");
        let words =
            ["squeue", "--noheader", "--array", "--format=%T", "--jobs", &list].map(String::from);
        let text = match said(&words, "") {
            Ok(text) => text,
            Err(EngineError::Failed { said, .. }) if said.contains(FORGOTTEN) => String::new(),
            Err(error) => return Err(error),
        };
        let mut alive = Alive::default();
        for state in text.lines().map(str::trim) {
            match state {
                "PENDING" | "CONFIGURING" | "REQUEUED" | "REQUEUE_HOLD" | "SUSPENDED" => {
                    alive.waiting += 1;
                }
                "RUNNING" | "COMPLETING" | "STAGE_OUT" | "RESIZING" => alive.running += 1,
                _ => {}
            }
        }
        Ok(Some(alive))
    }

    fn cancel(&self, jobs: &[String]) -> Result<(), EngineError> {
        let mut words = vec!["scancel".to_owned()];
        words.extend(jobs.iter().cloned());
        said(&words, "").map(drop)
    }
}
