//! Which numbers a machine profile may hold: it can come from anywhere, and models, rules and tables compute with it.
//!
//! Looked at before anything is made of the file, number by number, so that none that is added later is forgotten: what
//! a number is shows in the name that it, or what it is a part of, has.

use serde_json::Value;

/// No operation, miss or wait of any processor takes so long, nor a copy of the largest size that is probed.
const MOST_CYCLES: f64 = 1e5;
/// Nor has one memory of so many bytes.
const MOST_BYTES: f64 = (1_u64 << 50) as f64;
/// Megahertz, per cents, ways, branches, samples.
const MOST: f64 = 1e8;

/// Name and fault of the first number that no processor has.
pub(super) fn wrong(profile: &Value) -> Option<(String, String)> {
    wrong_in(profile, "", MOST)
}

fn wrong_in(value: &Value, field: &str, most: f64) -> Option<(String, String)> {
    let named = |why: String| Some((field.to_owned(), why));
    match value {
        Value::Number(number) => {
            let number = number.as_f64().unwrap_or(f64::NAN);
            // What was measured to be nothing has an interval around it.
            let least = if field.ends_with(".low") { -most } else { 0.0 };
            let is_possible = (least..=most).contains(&number);
            if is_possible { None } else { named(format!("is {number:?}")) }
        }
        Value::Array(all) => {
            let mut all = all.iter().enumerate();
            all.find_map(|(n, value)| wrong_in(value, &format!("{field}[{n}]"), most))
        }
        Value::Object(all) => {
            let of = |(name, value): (&String, &Value)| {
                let most = match name.as_str() {
                    "n" => MOST,
                    name if name.ends_with("bytes") => MOST_BYTES,
                    name if name.ends_with("cycles") => MOST_CYCLES,
                    _ => most,
                };
                let dot = if field.is_empty() { "" } else { "." };
                wrong_in(value, &format!("{field}{dot}{name}"), most)
            };
            let number = |name: &str| all.get(name).and_then(Value::as_f64);
            let ends = [("low_cycles", "high_cycles"), ("low", "high")];
            let ends = ends.iter().find_map(|(low, high)| number(low).zip(number(high)));
            all.iter().find_map(of).or_else(|| match ends {
                Some((low, high)) if low > high => named(format!("is {low:?} to {high:?}")),
                _ => None,
            })
        }
        Value::Null | Value::Bool(_) | Value::String(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEASURED: &str = include_str!("../../tests/profiles/amd-26-2-1-guest.json");

    /// Every number of the value, to be changed.
    fn numbers(value: &mut Value) -> Vec<&mut Value> {
        match value {
            Value::Number(_) => vec![value],
            Value::Array(all) => all.iter_mut().flat_map(numbers).collect(),
            Value::Object(all) => all.values_mut().flat_map(numbers).collect(),
            Value::Null | Value::Bool(_) | Value::String(_) => Vec::new(),
        }
    }

    #[test]
    fn no_number_of_a_profile_may_be_absurd_or_negative() {
        let measured: Value = serde_json::from_str(MEASURED).unwrap();
        assert_eq!(wrong(&measured), None);
        let count = numbers(&mut measured.clone()).len();
        assert!(count > 100, "{count}");
        for n in 0..count {
            for absurd in [1e308, -1e300] {
                let mut changed = measured.clone();
                *numbers(&mut changed)[n] = absurd.into();
                let (field, why) = wrong(&changed).unwrap();
                assert!(!field.is_empty() && why == format!("is {absurd:?}"), "{field} {why}");
            }
        }
    }

    #[test]
    fn the_first_wrong_number_is_named_with_the_way_to_it() {
        let said = |text: &str| wrong(&serde_json::from_str(text).unwrap());
        let told = |field: &str, why: &str| Some((field.to_owned(), why.to_owned()));
        let misses =
            r#"{"data_miss_cycles": [{"low_cycles": 1, "high_cycles": 2}, {"low_cycles": -3}]}"#;
        assert_eq!(said(misses), told("data_miss_cycles[1].low_cycles", "is -3.0"));
        assert_eq!(said(r#"{"third_level_bytes": 8388608}"#), None);
        assert_eq!(said(r#"{"a_cycles": 8388608}"#), told("a_cycles", "is 8388608.0"));
        let around_nothing = |value: &str| {
            said(&format!(
                r#"{{"apart_cycles": {{"value": {value}, "low": -0.1, "high": 0.1, "n": 200000}}}}"#
            ))
        };
        assert_eq!(around_nothing("0.0"), None, "a count is no time");
        assert_eq!(around_nothing("-0.05"), told("apart_cycles.value", "is -0.05"));
        let inverted = r#"{"walk_cycles": {"low_cycles": 16.0, "high_cycles": 15.0}}"#;
        assert_eq!(said(inverted), told("walk_cycles", "is 16.0 to 15.0"));
    }
}
