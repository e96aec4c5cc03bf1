//! The figures: medians over rounds and placements, their intervals, and the ratio to the better
//! of meshoptimizer's builds.

/// What was measured of one codec at one place.
#[derive(Clone, Default)]
pub struct Samples {
    /// Nanoseconds per call, one per round.
    pub ns: Vec<f64>,
    /// The same in cycles of the core clock as it was in that round.
    pub cycles: Vec<f64>,
}

/// One codec.
pub struct Row {
    pub name: String,
    /// Meshoptimizer's: what the others are held against.
    pub theirs: bool,
    pub layouts: Vec<Samples>,
}

/// Prints one mesh. A ratio above 1 means faster than the better of meshoptimizer's builds.
pub fn print(title: &str, triangles: usize, bytes_per_triangle: usize, rows: &[Row]) {
    let bytes = (triangles * bytes_per_triangle) as f64;
    println!("\n{title}: {triangles} triangles");
    println!(
        "{:28} {:>6} {:>13}  {:15} {:12} {:>6} {:>13}",
        "", "GB/s", "cycles/tri.", "[95% of median]", "layouts", "ratio", "[95%]"
    );
    for row in rows {
        let of_layouts: Vec<f64> = row.layouts.iter().map(|s| median(&s.ns)).collect();
        let cycles: Vec<f64> =
            row.layouts.iter().map(|s| median(&s.cycles) / triangles as f64).collect();
        let (low, high) = interval(&rounds(row, |s| &s.cycles));
        let (least, most) = (least(&cycles), greatest(&cycles));
        let (ratio, ratio_low, ratio_high) = ratio(row, rows);
        println!(
            "{:28} {:6.2} {:13.2}  [{:5.2}, {:5.2}]  {least:5.2}-{most:<5.2}  {ratio:6.3} \
             [{ratio_low:.3}, {ratio_high:.3}]",
            row.name,
            bytes / median(&of_layouts),
            median(&cycles),
            low / triangles as f64,
            high / triangles as f64,
        );
    }
}

/// The median over placements, per round.
fn rounds(row: &Row, of: impl Fn(&Samples) -> &Vec<f64>) -> Vec<f64> {
    (0..of(&row.layouts[0]).len())
        .map(|round| median(&row.layouts.iter().map(|s| of(s)[round]).collect::<Vec<_>>()))
        .collect()
}

/// How many times as fast as the better of theirs: round by round, so that what changes from
/// round to round drops out.
fn ratio(row: &Row, rows: &[Row]) -> (f64, f64, f64) {
    let ours = rounds(row, |s| &s.ns);
    let best = rows
        .iter()
        .filter(|other| other.theirs)
        .map(|other| rounds(other, |s| &s.ns))
        .min_by(|x, y| median(x).total_cmp(&median(y)));
    let Some(best) = best else { return (f64::NAN, f64::NAN, f64::NAN) };
    let ratios: Vec<f64> = best.iter().zip(&ours).map(|(theirs, ours)| theirs / ours).collect();
    let (low, high) = interval(&ratios);
    (median(&ratios), low, high)
}

/// The 95 % interval of the median by order statistics: no assumption about the distribution.
fn interval(values: &[f64]) -> (f64, f64) {
    let sorted = sorted(values);
    let n = sorted.len() as f64;
    let half_width = 0.98 * n.sqrt();
    let low = (n / 2.0 - half_width).floor().max(0.0) as usize;
    let high = ((n / 2.0 + half_width).ceil() as usize).min(sorted.len() - 1);
    (sorted[low], sorted[high])
}

fn median(values: &[f64]) -> f64 {
    let sorted = sorted(values);
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 { sorted[middle] } else { (sorted[middle - 1] + sorted[middle]) / 2.0 }
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

fn least(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::MAX, f64::min)
}

fn greatest(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::MIN, f64::max)
}

/// Fisher and Yates, from a seed that is the same every time.
pub fn shuffle<T>(items: &mut [T], state: &mut u64) {
    for last in (1..items.len()).rev() {
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        items.swap(last, (*state >> 33) as usize % (last + 1));
    }
}
