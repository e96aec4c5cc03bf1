//! The toolchains' own ways to put the same code elsewhere.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The tool that places functions at random.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Knob {
    /// Go's linker: `-ldflags=-randlayout=SEED`.
    Go,
    /// lld: `--shuffle-sections`, with a section per function.
    Lld,
    /// lld 20 and newer: `--randomize-section-padding`, order untouched.
    LldPadding,
    /// mold: `--shuffle-sections`, with a section per function.
    Mold,
    /// GNU ld: a linker script with the functions in random order.
    GnuLd,
    /// Rust, by way of lld.
    Rust,
    /// No other build: the size of the environment, which moves the stack.
    Environment,
}

impl Knob {
    /// All of them with the names that are typed.
    pub const ALL: [(&'static str, Self); 7] = [
        ("go", Self::Go),
        ("lld", Self::Lld),
        ("lld-padding", Self::LldPadding),
        ("mold", Self::Mold),
        ("gnu-ld", Self::GnuLd),
        ("rust", Self::Rust),
        ("env", Self::Environment),
    ];

    /// The name that is typed.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, knob)| *knob == self).map_or("", |(name, _)| name)
    }

    /// Guesses from the words of the build template; without one only the environment is left.
    #[must_use]
    pub fn detect(build: Option<&str>) -> Self {
        let Some(build) = build else { return Self::Environment };
        let has =
            |word: &str| build.split(|c: char| !c.is_alphanumeric() && c != '_').any(|w| w == word);
        if has("go") {
            Self::Go
        } else if has("cargo") || has("rustc") {
            Self::Rust
        } else if has("mold") {
            Self::Mold
        } else if has("lld") {
            Self::Lld
        } else {
            Self::GnuLd
        }
    }

    /// Whether placements of this knob are other files.
    #[must_use]
    pub fn rebuilds(self) -> bool {
        self != Self::Environment
    }

    /// Flags for `{layout}`: what every build needs, and with `seed` the placement. `order` is the
    /// linker script of [`Knob::GnuLd`]. The toolchain's alignment is never touched.
    #[must_use]
    pub fn flags(self, seed: Option<u64>, order: Option<&str>) -> String {
        let always = match self {
            Self::Lld | Self::LldPadding => "-ffunction-sections -fuse-ld=lld",
            Self::Mold => "-ffunction-sections -fuse-ld=mold",
            Self::GnuLd => "-ffunction-sections",
            Self::Rust => "-C link-arg=-fuse-ld=lld",
            Self::Go | Self::Environment => "",
        };
        let placed = match (self, seed, order) {
            (Self::Go, Some(seed), _) => format!("-ldflags=-randlayout={seed}"),
            (Self::Lld, Some(seed), _) => format!("-Wl,--shuffle-sections=.text*={seed}"),
            (Self::LldPadding, Some(seed), _) => format!("-Wl,--randomize-section-padding={seed}"),
            (Self::Mold, Some(seed), _) => format!("-Wl,--shuffle-sections={seed}"),
            (Self::Rust, Some(seed), _) => {
                format!("-C link-arg=-Wl,--shuffle-sections=.text*={seed}")
            }
            (Self::GnuLd, _, Some(script)) => format!("-Wl,-T,{script}"),
            _ => String::new(),
        };
        format!("{always} {placed}").trim().to_owned()
    }

    /// Flags that align every function to `bytes`, for `{layout}`.
    #[must_use]
    pub fn align_flags(self, bytes: u32) -> String {
        match self {
            Self::Go => format!("-ldflags=-funcalign={bytes}"),
            Self::Rust => format!("-C llvm-args=-align-all-functions={}", bytes.max(1).ilog2()),
            _ => format!("-falign-functions={bytes}"),
        }
    }

    /// Variables that carry the same flags to a build whose template has no `{layout}`.
    #[must_use]
    pub fn variables(self, flags: &str) -> Vec<(&'static str, String)> {
        if flags.is_empty() {
            return Vec::new();
        }
        let words = |keep: fn(&str) -> bool| -> String {
            flags.split(' ').filter(|w| keep(w)).collect::<Vec<_>>().join(" ")
        };
        match self {
            Self::Go => vec![("GOFLAGS", flags.into())],
            Self::Rust => vec![("RUSTFLAGS", flags.into())],
            Self::Environment => Vec::new(),
            _ => {
                let compile = words(|w| w.starts_with("-f") && !w.starts_with("-fuse-ld"));
                let mut variables = vec![("CFLAGS", compile.clone()), ("CXXFLAGS", compile)];
                variables.push(("LDFLAGS", words(|w| !w.starts_with("-ff"))));
                variables
            }
        }
    }
}

/// Go takes `-ldflags` once: several become one.
#[must_use]
pub fn joined(knob: Knob, parts: &[String]) -> String {
    let parts: Vec<&str> = parts.iter().map(String::as_str).filter(|p| !p.is_empty()).collect();
    if knob == Knob::Go && parts.len() > 1 {
        let inner: Vec<&str> = parts.iter().map(|p| p.trim_start_matches("-ldflags=")).collect();
        // In GOFLAGS as in a shell, quotes hold a flag with blanks together.
        return format!("'-ldflags={}'", inner.join(" "));
    }
    parts.join(" ")
}

#[cfg(test)]
mod unit {
    use super::*;

    #[test]
    fn the_toolchain_is_guessed_from_the_template() {
        let guess = |t: &str| Knob::detect(Some(t));
        assert_eq!(guess("go build -o {out} ."), Knob::Go);
        assert_eq!(guess("cargo build --release"), Knob::Rust);
        assert_eq!(guess("clang -fuse-ld=lld x.c"), Knob::Lld);
        assert_eq!(guess("make CC=gcc OUT={out}"), Knob::GnuLd);
        assert_eq!(guess("cargo-like google"), Knob::Rust);
        assert_eq!(Knob::detect(None), Knob::Environment);
    }

    #[test]
    fn flags_carry_the_seed_and_the_default_build_carries_none() {
        for (name, knob) in Knob::ALL {
            let placed = knob.flags(Some(7), Some("/s"));
            let plain = knob.flags(None, None);
            assert!(knob == Knob::Environment || placed != plain, "{name}");
            assert!(!plain.contains("shuffle") && !plain.contains("align"), "{name}: {plain}");
        }
        let both = joined(Knob::Go, &[Knob::Go.flags(Some(3), None), Knob::Go.align_flags(32)]);
        assert_eq!(both, "'-ldflags=-randlayout=3 -funcalign=32'");
        let variables = Knob::Lld.variables(&Knob::Lld.flags(Some(3), None));
        assert_eq!(variables[0], ("CFLAGS", "-ffunction-sections".into()));
        assert_eq!(
            variables[2],
            ("LDFLAGS", "-fuse-ld=lld -Wl,--shuffle-sections=.text*=3".into())
        );
    }
}
