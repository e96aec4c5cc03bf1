//! By which processor a file is judged: this machine, where the file can run on it, else a design
//! that is named on the screen.

use std::borrow::Cow;

use anyhow::bail;
use stallscope::code::{Architecture, Image};
use stallscope::machine::{Design, Microarchitecture};

use crate::profile::Chosen;
use crate::terminal::wrap;

/// The AArch64 design that is assumed by default: of the documented ones the strictest,
/// so that what it forwards every other forwards too. A load needs one store that holds all of it.
const ASSUMED_AARCH64: Microarchitecture = Microarchitecture::AmpereSkylark;

/// A design to judge by, and what the screen says about it.
pub struct Judge<'a> {
    pub design: Cow<'a, Design>,
    /// A line for the screen, when it is not this machine.
    pub note: Option<String>,
}

/// Chooses by what the user named, else by what the file is for.
///
/// # Errors
/// When the named design cannot run the file.
pub fn judge<'a>(image: &Image, chosen: &'a Chosen) -> anyhow::Result<Judge<'a>> {
    let noted = |design, note: String| Judge { design, note: Some(wrap("judged   ", &note)) };
    let is_aarch64 = image.architecture() == Architecture::Aarch64;
    if chosen.named {
        let name = chosen.design.microarchitecture;
        if name.is_aarch64() != is_aarch64 {
            bail!(
                "{} is for {}, which {name} does not run; --as takes {}",
                image.path().display(),
                image.architecture(),
                names(is_aarch64)
            );
        }
        let measured = chosen.design.environment.is_some();
        let source = if measured { "as the profile has it" } else { "as published" };
        let note = format!("by {name}, {source}; not by this machine");
        return Ok(noted(Cow::Borrowed(&chosen.design), note));
    }
    if Architecture::HOST == Some(image.architecture()) {
        return Ok(Judge { design: Cow::Borrowed(&chosen.design), note: None });
    }
    let design = if is_aarch64 { ASSUMED_AARCH64 } else { Microarchitecture::Unknown };
    let note = format!(
        "by {design}, the strictest {} design on record, because nothing says which one will run \
         it; --as NAME chooses another",
        image.architecture()
    );
    Ok(noted(Cow::Owned(Design::of(design)), note))
}

/// The designs of one architecture as they can be typed.
fn names(is_aarch64: bool) -> String {
    let fits = |design: &&Microarchitecture| design.is_aarch64() == is_aarch64;
    Microarchitecture::ALL.iter().filter(fits).map(|d| d.slug()).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use stallscope::code::fixture;

    use super::*;

    #[test]
    fn this_machine_judges_what_it_can_run_and_a_named_design_what_it_is_named_for() {
        let image = fixture::image(&[("main", &[0xc3])]).unwrap();
        let chosen = |named, name| Chosen { design: Design::of(name), named, file: None };
        let here = chosen(false, Microarchitecture::Zen5);
        if Architecture::HOST == Some(Architecture::X86_64) {
            let judge = judge(&image, &here).unwrap();
            assert!(judge.note.is_none());
            assert_eq!(*judge.design, here.design);
        }
        let zen_4 = chosen(true, Microarchitecture::Zen4);
        let judged = judge(&image, &zen_4).unwrap();
        assert_eq!(judged.design.microarchitecture, Microarchitecture::Zen4);
        assert!(judged.note.unwrap().contains("by Zen 4, as published"));
        let arm = chosen(true, Microarchitecture::NeoverseV2);
        let error = judge(&image, &arm).err().unwrap().to_string();
        assert!(error.contains("does not run") && error.contains("cascade-lake"), "{error}");
    }
}
