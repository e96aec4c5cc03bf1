//! By which processor a file is judged: this machine, where the file can run on it, else a design
//! that is named on the screen.

use std::borrow::Cow;

use anyhow::bail;
use stallscope::code::{Architecture, Image};
use stallscope::machine::{MachineProfile, Microarchitecture};

use crate::terminal::wrap;

/// The AArch64 design that is assumed by default: of the documented ones the strictest,
/// so that what it forwards every other forwards too. A load needs one store that holds all of it.
const ASSUMED_AARCH64: Microarchitecture = Microarchitecture::AmpereSkylark;

/// A profile to judge by, and what the screen says about it.
pub struct Judge<'a> {
    /// The profile.
    pub profile: Cow<'a, MachineProfile>,
    /// A line for the screen, when it is not this machine's profile.
    pub note: Option<String>,
}

/// Chooses by what the user named, else by what the file is for.
///
/// # Errors
/// When no design has that name, or it cannot run the file.
pub fn judge<'a>(
    image: &Image,
    cpu: Option<&str>,
    here: &'a MachineProfile,
) -> anyhow::Result<Judge<'a>> {
    let of = |design, note: String| Judge {
        profile: Cow::Owned(MachineProfile::for_microarchitecture(design)),
        note: Some(wrap("judged   ", &note)),
    };
    let is_aarch64 = image.architecture() == Architecture::Aarch64;
    if let Some(name) = cpu {
        let Some(design) = Microarchitecture::named(name) else { bail!(unknown(name, is_aarch64)) };
        if design.is_aarch64() != is_aarch64 {
            bail!(
                "{} is for {}, which {design} does not run; --cpu takes {}",
                image.path().display(),
                image.architecture(),
                names(is_aarch64)
            );
        }
        return Ok(of(design, format!("by {design}, as published; not by this machine")));
    }
    if Architecture::HOST == Some(image.architecture()) {
        return Ok(Judge { profile: Cow::Borrowed(here), note: None });
    }
    let design = if is_aarch64 { ASSUMED_AARCH64 } else { Microarchitecture::Unknown };
    let note = format!(
        "by {design}, the strictest {} design on record, because nothing says which one will run \
         it; --cpu NAME chooses another",
        image.architecture()
    );
    Ok(of(design, note))
}

fn unknown(name: &str, is_aarch64: bool) -> String {
    format!("no processor design is called `{name}`; --cpu takes {}", names(is_aarch64))
}

/// The designs of one architecture as they can be typed.
fn names(is_aarch64: bool) -> String {
    let fits = |design: &&Microarchitecture| design.is_aarch64() == is_aarch64;
    let typed = |design: &Microarchitecture| design.name().to_lowercase().replace(' ', "-");
    Microarchitecture::ALL.iter().filter(fits).map(typed).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use stallscope::code::fixture;

    use super::*;

    #[test]
    fn this_machine_judges_what_it_can_run_and_a_named_design_what_it_is_named_for() {
        let program = fixture::program(&[("main", &[0xc3])]);
        let image = Image::parse(Path::new("p"), program).unwrap();
        let here = MachineProfile::for_microarchitecture(Microarchitecture::Zen5);
        if Architecture::HOST == Some(Architecture::X86_64) {
            let judge = judge(&image, None, &here).unwrap();
            assert!(judge.note.is_none());
            assert_eq!(*judge.profile, here);
        }
        let named = judge(&image, Some("Zen 4"), &here).unwrap();
        assert_eq!(named.profile.microarchitecture, Microarchitecture::Zen4);
        assert!(named.note.unwrap().contains("Zen 4"));
        let error = |cpu| judge(&image, Some(cpu), &here).err().unwrap().to_string();
        assert!(error("neoverse-v2").contains("does not run"));
        assert!(error("pentium").contains("cascade-lake"), "{}", error("pentium"));
    }
}
