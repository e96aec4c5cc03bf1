//! Callgrind's output: what each function spent itself, by instruction where it was recorded
//! (`--dump-instr=yes`).

use std::collections::HashMap;

use crate::model::{HotPlace, HotSpot, Svma};

/// Whether a text is one.
pub(super) fn is_one(text: &str) -> bool {
    text.lines()
        .take(5)
        .any(|l| l.contains("callgrind format") || l.starts_with("creator: callgrind"))
}

/// All self costs, of the first event that was counted.
pub(super) fn read(text: &str) -> Result<Vec<HotSpot>, String> {
    let mut reader = Reader::default();
    for (number, line) in text.lines().enumerate() {
        reader.line(line.trim()).ok_or_else(|| format!("line {} makes no sense", number + 1))?;
    }
    Ok(reader.spots)
}

#[derive(Default)]
struct Reader {
    /// Whether each cost begins with an address, and how many columns come before the numbers.
    has_address: bool,
    columns: usize,
    objects: HashMap<String, String>,
    functions: HashMap<String, String>,
    object: Option<String>,
    function: Option<String>,
    address: u64,
    /// The next cost is that of a call, which is not the function's own.
    is_call: bool,
    spots: Vec<HotSpot>,
}

impl Reader {
    /// Takes one line; `None` when it makes no sense.
    fn line(&mut self, line: &str) -> Option<()> {
        if line.is_empty() || line.starts_with('#') {
            return Some(());
        }
        if let Some(positions) = line.strip_prefix("positions:") {
            self.has_address = positions.split_whitespace().next() == Some("instr");
            self.columns = positions.split_whitespace().count();
            return Some(());
        }
        if line.starts_with(|c: char| c.is_ascii_digit() || "+-*".contains(c)) {
            return self.cost(line);
        }
        match line.split_once('=') {
            Some(("ob", name)) => self.object = Some(full_name(&mut self.objects, name)?),
            Some(("cob", name)) => drop(full_name(&mut self.objects, name)?),
            Some(("fn", name)) => self.function = Some(full_name(&mut self.functions, name)?),
            Some(("cfn", name)) => drop(full_name(&mut self.functions, name)?),
            Some(("calls", _)) => self.is_call = true,
            // Source files, jumps and what newer versions add.
            _ => {}
        }
        Some(())
    }

    fn cost(&mut self, line: &str) -> Option<()> {
        let mut words = line.split_whitespace();
        if self.has_address {
            self.address = moved(self.address, words.next()?)?;
        }
        let columns = self.columns.max(1) - usize::from(self.has_address);
        let weight = words.nth(columns).map_or(Some(0.0), |w| w.parse::<f64>().ok())?;
        if std::mem::take(&mut self.is_call) || weight <= 0.0 || !weight.is_finite() {
            return Some(());
        }
        let place = match &self.function {
            _ if self.has_address => HotPlace::Stated(Svma(self.address)),
            Some(name) => HotPlace::Function { name: name.clone(), offset_bytes: None },
            None => return Some(()),
        };
        self.spots.push(HotSpot { object: self.object.clone(), place, weight });
        Some(())
    }
}

/// A position: absolute in hex or decimal, or relative to the last one.
fn moved(last: u64, word: &str) -> Option<u64> {
    let number = |text: &str| match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    };
    match word.split_at_checked(1)? {
        ("*", "") => Some(last),
        ("+", by) => Some(last.wrapping_add(number(by)?)),
        ("-", by) => Some(last.wrapping_sub(number(by)?)),
        _ => number(word),
    }
}

/// `(12) name` defines a name, `(12)` repeats it, anything else is one without a number.
fn full_name(names: &mut HashMap<String, String>, text: &str) -> Option<String> {
    let Some(rest) = text.strip_prefix('(') else { return Some(text.to_owned()) };
    let (number, name) = rest.split_once(')')?;
    let name = name.trim();
    if name.is_empty() {
        return Some(names.get(number).cloned().unwrap_or_default());
    }
    names.insert(number.to_owned(), name.to_owned());
    Some(name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_costs_are_read_with_and_without_addresses() {
        let with = "# callgrind format\npositions: instr line\nevents: Ir\nob=(1) /tmp/p\n\
            fn=(1) hot\n0x1000 5 10\n+4 * 20\ncfn=(2) other\ncalls=1 0x2000 9\n* 7 500\n\
            fn=(2)\n0x2000 9 3\n";
        let spots = read(with).unwrap();
        let seen: Vec<_> = spots.iter().map(|s| (s.place.clone(), s.weight)).collect();
        let at = |svma| HotPlace::Stated(Svma(svma));
        assert_eq!(seen, [(at(0x1000), 10.0), (at(0x1004), 20.0), (at(0x2000), 3.0)]);
        assert_eq!(spots[0].object.as_deref(), Some("/tmp/p"));

        let without = "# callgrind format\nevents: Ir\nfn=(1) hot\n5 10\n+1 20\n";
        let spots = read(without).unwrap();
        let hot = HotPlace::Function { name: "hot".into(), offset_bytes: None };
        assert!(spots.len() == 2 && spots.iter().all(|s| s.place == hot), "{spots:?}");
    }
}
