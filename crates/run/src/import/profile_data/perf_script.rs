//! The text of `perf script`: one line per sample, or a head with its call chain below.

use crate::model::{HotPlace, HotSpot, Svma};

/// All samples that can be made out; other lines are passed over.
pub(super) fn read(text: &str) -> Vec<HotSpot> {
    let mut spots = Vec::new();
    // The weight of a head whose first frame has not come yet.
    let mut waiting = None;
    for line in text.lines() {
        if line.trim().is_empty() {
            waiting = None;
        } else if let Some((weight, frame)) = head(line) {
            waiting = None;
            match spot(frame, weight) {
                Some(found) => spots.push(found),
                None => waiting = Some(weight),
            }
        } else if let Some(weight) = waiting {
            spots.extend(spot(line, weight));
            waiting = None;
        }
    }
    spots
}

/// The head of a sample: its weight and what follows the event's name. `comm 123 [000] 4.5: 250000
/// cpu-clock:u:   7f12 symbol+0x1 (object)`.
fn head(line: &str) -> Option<(f64, &str)> {
    let (before, behind) = line.split_once(": ")?;
    let (_, time) = before.trim_end().rsplit_once(' ')?;
    time.parse::<f64>().ok()?;
    let rest = behind.trim_start();
    let (first, more) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
    // The period is left out where it was fixed.
    let (weight, event_on) = match first.parse::<f64>() {
        Ok(period) if period > 0.0 && period.is_finite() => (period, more.trim_start()),
        _ => (1.0, rest),
    };
    let (event, frame) = event_on.split_once(char::is_whitespace).unwrap_or((event_on, ""));
    event.ends_with(':').then(|| (weight, frame.trim()))
}

/// `7f12 symbol+0x1 (object)`.
fn spot(frame: &str, weight: f64) -> Option<HotSpot> {
    let (address, rest) = frame.trim().split_once(char::is_whitespace)?;
    let address = u64::from_str_radix(address, 16).ok()?;
    let rest = rest.trim();
    let (symbol, object) = match rest.rsplit_once(" (") {
        Some((symbol, object)) => (symbol, Some(object.trim_end_matches(')'))),
        None => (rest, None),
    };
    let object = object.filter(|o| *o != "[unknown]").map(str::to_owned);
    let place = match symbol.rsplit_once("+0x") {
        _ if symbol == "[unknown]" => HotPlace::Stated(Svma(address)),
        Some((name, offset)) => HotPlace::Function {
            name: name.to_owned(),
            offset_bytes: Some(u64::from_str_radix(offset, 16).ok()?),
        },
        None => HotPlace::Function { name: symbol.to_owned(), offset_bytes: None },
    };
    Some(HotSpot { object, place, weight })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_per_sample_and_call_chains() {
        let text = "
             hot 14839 15027.084816:     250000 cpu-clock:      5574eef63159 hot+0x19 (/tmp/hot)
             hot 14839 15027.1: cycles:u:  401000 ns::f(int, char)+0x2 (/tmp/prog)
hot 14857 [001] 15029.312137:     250000 cpu-clock: 
\tffffffff821f2fa7 exc_page_fault+0xd7 ([kernel.kallsyms])
\tffffffff81000c82 asm_exc_page_fault+0x22 ([kernel.kallsyms])

hot 14857 15029.4: 1 cpu-clock: 
\t           14645 [unknown] ([unknown])
";
        let spots = read(text);
        let place = |name: &str, offset| HotPlace::Function {
            name: name.to_owned(),
            offset_bytes: Some(offset),
        };
        assert_eq!(spots.len(), 4, "{spots:#?}");
        assert_eq!(spots[0].place, place("hot", 0x19));
        assert_eq!((spots[0].weight, spots[0].object.as_deref()), (250_000.0, Some("/tmp/hot")));
        assert_eq!((&spots[1].place, spots[1].weight), (&place("ns::f(int, char)", 2), 1.0));
        assert_eq!(spots[2].place, place("exc_page_fault", 0xd7));
        assert_eq!(spots[3].place, HotPlace::Stated(Svma(0x14645)));
        assert!(read("no: profile\nat all\n").is_empty());
    }
}
