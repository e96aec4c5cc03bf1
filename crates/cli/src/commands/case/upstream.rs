//! The case `upstream-index-decoder`: lives in the source tree, because it is about what two
//! versions of a compiler make of the same source.

use super::{Case, CaseArgs};
use crate::context::{Context, Outcome};
use crate::output;
use crate::terminal::{self, wrap};

/// See the module.
pub struct UpstreamIndexDecoder;

const FOLDER: &str = "cases/upstream-index-decoder";

impl Case for UpstreamIndexDecoder {
    fn id(&self) -> &'static str {
        "upstream-index-decoder"
    }

    fn title(&self) -> &'static str {
        "meshoptimizer's decoder by clang 16 and clang 19"
    }

    fn run(&self, args: &CaseArgs, context: &Context) -> anyhow::Result<Outcome> {
        anyhow::ensure!(args.mesh.is_none(), "--mesh is for the case index-codec");
        let steps = [
            format!("{FOLDER}/build.sh"),
            format!(
                "stallscope explain {FOLDER}/build/decoder-clang-19 \\\n    \
                 {FOLDER}/build/decoder-clang-16 -- strips"
            ),
        ];
        if context.shows_screen() {
            let words = "one decoder runs at half its speed because a compiler merged two loads; \
                         it needs clang 16, clang 19 and the source tree of stallscope. There:";
            terminal::print(&format!("{}\n  {}\n", wrap("", words), steps.join("\n  ")))?;
        }
        output::json(context, "case-steps", &steps)?;
        Ok(Outcome::Fine)
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_folder_is_there() {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../");
        let script = format!("{root}{}/build.sh", super::FOLDER);
        assert!(std::path::Path::new(&script).exists());
    }
}
