//! Axes, their product, and the templates that they fill.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::SweepError;

/// Variants above this are a typing error rather than a plan.
const MOST_VARIANTS: usize = 1000;

/// Names that templates have besides the axes.
const RESERVED: [&str; 3] = ["out", "layout", "seed"];

/// The axis that flags are made for where the build does not name it.
pub(super) const ALIGN: &str = "align";

/// A name in the templates and the values that it takes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Axis {
    /// Its name in templates, without braces.
    pub name: String,
    /// Its values in the order given.
    pub values: Vec<String>,
}

impl Axis {
    /// An axis from its name and a list with commas.
    ///
    /// # Errors
    /// When the name cannot be one, or a value is missing or given twice.
    pub fn parse(name: &str, list: &str) -> Result<Self, SweepError> {
        let wrong = |what: &str| SweepError::Axis { name: name.into(), what: what.into() };
        if !is_name(name) {
            return Err(wrong("a name has letters, digits, `_` and `-`, and starts with a letter"));
        }
        if RESERVED.contains(&name) {
            return Err(wrong(
                "this name is taken: `out`, `layout` and `seed` are filled in by us",
            ));
        }
        let values: Vec<String> = list.split(',').map(|v| v.trim().to_owned()).collect();
        if values.iter().any(String::is_empty) {
            return Err(wrong("a value is missing (values are separated by commas)"));
        }
        if (1..values.len()).any(|i| values[..i].contains(&values[i])) {
            return Err(wrong("a value stands there twice"));
        }
        Ok(Self { name: name.into(), values })
    }

    /// The axis whose values are alignments of functions, for which flags can be made.
    ///
    /// # Errors
    /// As [`Axis::parse`], and when a value is no power of two.
    pub fn of_alignments(list: &str) -> Result<Self, SweepError> {
        let axis = Self::parse(ALIGN, list)?;
        axis.check_alignments()?;
        Ok(axis)
    }

    pub(super) fn check_alignments(&self) -> Result<(), SweepError> {
        let is_one = |value: &&String| value.parse().is_ok_and(u32::is_power_of_two);
        match self.values.iter().find(|value| !is_one(value)) {
            None => Ok(()),
            Some(value) => {
                let what =
                    format!("`{value}` is no alignment: powers of two are, like 16, 32 or 64");
                Err(SweepError::Axis { name: self.name.clone(), what })
            }
        }
    }
}

/// One value of every axis.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Variant {
    /// Name and value of every axis, in order.
    pub values: Vec<(String, String)>,
}

impl Variant {
    /// `cxx=clang++-16 align=32`, or `the build` without axes.
    #[must_use]
    pub fn label(&self) -> String {
        label(&self.values, "the build")
    }

    /// The same without the first axis: the condition that is matched.
    #[must_use]
    pub fn level(&self) -> String {
        label(self.values.get(1..).unwrap_or_default(), "")
    }
}

fn label(values: &[(String, String)], without: &str) -> String {
    if values.is_empty() {
        return without.into();
    }
    values.iter().map(|(k, v)| format!("{k}={v}")).collect::<Vec<_>>().join(" ")
}

/// All combinations; the first axis changes slowest.
///
/// # Errors
/// When an axis is given twice, or there are absurdly many.
pub fn variants(axes: &[Axis]) -> Result<Vec<Variant>, SweepError> {
    let mut all = vec![Vec::new()];
    for (i, axis) in axes.iter().enumerate() {
        let wrong = |what: String| SweepError::Axis { name: axis.name.clone(), what };
        if axes[..i].iter().any(|a| a.name == axis.name) {
            return Err(wrong("it is given twice".into()));
        }
        all = all
            .iter()
            .flat_map(|before: &Vec<(String, String)>| {
                axis.values.iter().map(move |value| {
                    let mut values = before.clone();
                    values.push((axis.name.clone(), value.clone()));
                    values
                })
            })
            .collect();
        if all.len() > MOST_VARIANTS {
            return Err(wrong(format!("more than {MOST_VARIANTS} variants")));
        }
    }
    Ok(all.into_iter().map(|values| Variant { values }).collect())
}

fn is_name(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_alphabetic())
        && word.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
}

/// Fills `{name}` with its value. `${name}` belongs to the shell and stays, `{{` and `}}` are braces.
///
/// # Errors
/// [`SweepError::Placeholder`] for a name in braces that has no value.
pub fn fill(template: &str, values: &[(&str, &str)]) -> Result<String, SweepError> {
    let mut out = String::with_capacity(template.len());
    let mut rest = template;
    while let Some(at) = rest.find(['{', '}']) {
        let (before, from) = rest.split_at(at);
        out += before;
        if from.starts_with("{{") || from.starts_with("}}") {
            out += &from[..1];
            rest = &from[2..];
            continue;
        }
        let inner = from.strip_prefix('{').and_then(|f| f.split_once('}')).map(|f| f.0);
        match inner.filter(|word| is_name(word) && !before.ends_with('$')) {
            None => {
                out += &from[..1];
                rest = &from[1..];
            }
            Some(word) => {
                let Some((_, value)) = values.iter().find(|(name, _)| *name == word) else {
                    let known: Vec<&str> = values.iter().map(|v| v.0).collect();
                    return Err(SweepError::Placeholder {
                        name: word.into(),
                        template: template.into(),
                        known: known.join(", "),
                    });
                };
                out += value;
                rest = &from[word.len() + 2..];
            }
        }
    }
    Ok(out + rest)
}

#[cfg(test)]
mod unit {
    use super::*;

    #[test]
    fn axes_are_checked() {
        let axis = Axis::parse("cxx", "g++, clang++").unwrap();
        assert_eq!(axis.values, ["g++", "clang++"]);
        for (name, list, want) in [
            ("1x", "a", "letter"),
            ("out", "a", "taken"),
            ("x", "a,,b", "missing"),
            ("x", "a,a", "twice"),
        ] {
            let said = Axis::parse(name, list).unwrap_err().to_string();
            assert!(said.contains(want), "{said}");
        }
        assert_eq!(Axis::of_alignments("16, 64").unwrap().values, ["16", "64"]);
        for (list, value) in
            [("16,64,junk", "`junk`"), ("-8", "`-8`"), ("24", "`24`"), ("0", "`0`")]
        {
            let said = Axis::of_alignments(list).unwrap_err().to_string();
            assert!(said.contains(value) && said.contains("powers of two"), "{said}");
        }
        let twice = [axis.clone(), axis.clone()];
        assert!(variants(&twice).unwrap_err().to_string().contains("given twice"));
        let both = variants(&[axis, Axis::parse("align", "16,32").unwrap()]).unwrap();
        let labels: Vec<String> = both.iter().map(Variant::label).collect();
        assert_eq!(labels[1], "cxx=g++ align=32");
        assert_eq!(both[2].level(), "align=16");
        assert_eq!(variants(&[]).unwrap()[0].label(), "the build");
    }

    #[test]
    fn templates_are_filled_and_the_shells_braces_stay() {
        let values = [("cxx", "g++"), ("out", "/o")];
        let filled = |t: &str| fill(t, &values);
        assert_eq!(filled("{cxx} -o {out} ${HOME} {a b}").unwrap(), "g++ -o /o ${HOME} {a b}");
        assert_eq!(filled("awk '{{print}}' }").unwrap(), "awk '{print}' }");
        let said = filled("awk '{print}'").unwrap_err().to_string();
        assert!(said.contains("`{print}`") && said.contains("{{print}}"), "{said}");
    }
}
