//! Units: which way is better, and times in nanoseconds.

use super::Better;

/// Rates are better when higher, everything else when lower.
pub(super) fn better(unit: &str) -> Better {
    let per_time = unit.rsplit_once('/').is_some_and(|(_, per)| ns_in(per).is_some());
    let rate = per_time || unit.ends_with("_per_second");
    if rate { Better::Higher } else { Better::Lower }
}

/// Nanoseconds in a unit of time.
pub(super) fn ns_in(unit: &str) -> Option<f64> {
    match unit {
        "ns" | "nsec" | "nanoseconds" => Some(1.0),
        "us" | "µs" | "μs" | "usec" | "microseconds" => Some(1e3),
        "ms" | "msec" | "milliseconds" => Some(1e6),
        "s" | "sec" | "seconds" | "second" => Some(1e9),
        _ => None,
    }
}

/// Whether a unit is one of time, or has one: `real ns`, `ns/op`, `MB/s`.
pub(super) fn is_timed(unit: &str) -> bool {
    let mut words = unit.split(['/', ' ']);
    let ends = [words.next(), words.next_back()];
    ends.into_iter().flatten().any(|word| ns_in(word).is_some())
}

/// The factor from one unit to another; `None` when they do not convert.
pub(super) fn convert(from: &str, to: &str) -> Option<f64> {
    if from == to {
        return Some(1.0);
    }
    // A time per operation converts like a time.
    let split = |unit: &'_ str| -> (String, String) {
        match unit.split_once('/') {
            Some((time, rest)) => (time.to_owned(), rest.to_owned()),
            None => (unit.to_owned(), String::new()),
        }
    };
    let ((from, per), (to, per_2)) = (split(from), split(to));
    (per == per_2).then_some(())?;
    Some(ns_in(&from)? / ns_in(&to)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_convert_and_other_things_do_not() {
        assert_eq!(convert("ms", "ns"), Some(1e6));
        assert!(["real ns", "ns/op", "MB/s", "s"].into_iter().all(is_timed));
        assert!(!["B/op", "allocs/op", "", "events"].into_iter().any(is_timed));
        assert_eq!(convert("ns/op", "us/op"), Some(1e-3));
        assert_eq!(convert("B/op", "B/op"), Some(1.0));
        assert_eq!(convert("ns/op", "ns"), None);
        assert_eq!(convert("ms", "parsecs"), None);
        assert_eq!((better("MB/s"), better("ns/op")), (Better::Higher, Better::Lower));
        assert_eq!((better("ops/ms"), better("us/op")), (Better::Higher, Better::Lower));
    }
}
