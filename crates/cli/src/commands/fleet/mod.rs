//! `stallscope worker`, `submit` and `collect`: a planned sweep on other machines.

pub mod collect;
pub mod submit;
pub mod worker;

/// How to come back to blocks that others run.
fn come_back(out: &std::path::Path) -> String {
    let out = out.display();
    format!(
        "come back with `stallscope collect --follow {out}`; `--cancel` takes back what has not ended"
    )
}
