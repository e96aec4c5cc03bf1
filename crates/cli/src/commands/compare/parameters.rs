//! Parameters of commands, as typed: every command is run with every value, as hyperfine does it.

use std::ffi::{OsStr, OsString};

use anyhow::{Context as _, bail};
use clap::Args;
use stallscope::compare::Arm;
use stallscope::compare::sweep::Axis;

/// Digits behind the point that are taken.
const MOST_DIGITS: usize = 9;

#[derive(Debug, Args)]
#[command(next_help_heading = "Commands")]
pub struct ParameterArgs {
    /// Run every command with each of these values, separated by commas, in place of {NAME} (may be given again)
    #[arg(long, short = 'L', value_names = ["NAME", "VALUES"], num_args = 2, allow_hyphen_values = true,
          action = clap::ArgAction::Append, conflicts_with = "parameter_scan")]
    parameter_list: Vec<String>,
    /// Run every command with each number from MIN to MAX in place of {NAME}
    #[arg(long, short = 'P', value_names = ["NAME", "MIN", "MAX"], num_args = 3, allow_hyphen_values = true)]
    parameter_scan: Vec<String>,
    /// The step from MIN to MAX [default: 1]
    #[arg(long, short = 'D', value_name = "DELTA", requires = "parameter_scan")]
    parameter_step_size: Option<String>,
}

/// Name and value of every parameter of one command.
pub type Values = Vec<(String, String)>;

impl ParameterArgs {
    /// Every combination of values; one without any where there are no parameters.
    ///
    /// # Errors
    /// When numbers or values are missing, or there are more than can be ranked.
    pub fn combinations(&self) -> anyhow::Result<Vec<Values>> {
        let mut axes = Vec::new();
        for two in self.parameter_list.chunks_exact(2) {
            let values = two[1].split(',').map(str::to_owned).collect();
            axes.push(Axis { name: two[0].clone(), values });
        }
        if let [name, low, high] = &self.parameter_scan[..] {
            let step = self.parameter_step_size.as_deref().unwrap_or("1");
            let values = numbers(low, high, step).with_context(|| format!("parameter {name}"))?;
            axes.push(Axis { name: name.clone(), values });
        }
        let count = axes.iter().fold(1_usize, |n, axis| n.saturating_mul(axis.values.len()));
        if count > Arm::MOST {
            bail!("{count} combinations of parameters: {} can be ranked", Arm::MOST);
        }
        let all = stallscope::compare::sweep::variants(&axes)?;
        Ok(all.into_iter().map(|variant| variant.values).collect())
    }
}

/// Whether `text` has `{name}` in it.
pub fn names(text: &OsStr, name: &str) -> bool {
    text.to_str().is_some_and(|text| text.contains(&format!("{{{name}}}")))
}

/// `text` with each `{NAME}` replaced by its value; other braces stay.
pub fn filled(text: &OsStr, values: &Values) -> OsString {
    let Some(text) = text.to_str() else { return text.to_owned() };
    let fill = |text: String, (name, value): &(String, String)| {
        text.replace(&format!("{{{name}}}"), value)
    };
    values.iter().fold(text.to_owned(), fill).into()
}

/// Decimal numbers from `low` to `high`, exactly.
fn numbers(low: &str, high: &str, step: &str) -> anyhow::Result<Vec<String>> {
    let digits = |text: &str| text.split_once('.').map_or(0, |(_, behind)| behind.len());
    let places = digits(low).max(digits(high)).max(digits(step));
    let parsed = |text: &str| -> Option<i128> {
        let (before, behind) = text.split_once('.').unwrap_or((text, ""));
        let is_number = before.trim_start_matches('-').len() + behind.len() > 0
            && behind.bytes().all(|b| b.is_ascii_digit());
        let scaled = format!("{before}{behind}{}", "0".repeat(places.checked_sub(behind.len())?));
        scaled.parse::<i64>().ok().filter(|_| is_number).map(i128::from)
    };
    let number = |text: &str| {
        parsed(text)
            .filter(|_| places <= MOST_DIGITS)
            .with_context(|| format!("`{text}` is no decimal number"))
    };
    let (low, high, step) = (number(low)?, number(high)?, number(step)?);
    if step <= 0 {
        bail!("the step has to be above 0");
    }
    if high < low {
        bail!("there is nothing between MIN and MAX");
    }
    if (high - low) / step >= Arm::MOST as i128 {
        bail!("{} values: {} commands can be ranked", (high - low) / step + 1, Arm::MOST);
    }
    let scale = 10_i128.pow(places as u32);
    let shown = |n: i128| {
        let sign = if n < 0 { "-" } else { "" };
        match places {
            0 => n.to_string(),
            _ => format!("{sign}{}.{:0places$}", n.abs() / scale, n.abs() % scale),
        }
    };
    Ok((0..=(high - low) / step).map(|n| shown(low + n * step)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_exact_and_keep_their_digits() {
        let all = |low, high, step| numbers(low, high, step).map(|all| all.join(" "));
        assert_eq!(all("1", "4", "1").unwrap(), "1 2 3 4");
        assert_eq!(all("0.3", "0.7", "0.2").unwrap(), "0.3 0.5 0.7");
        assert_eq!(all("-0.5", "0.5", "0.5").unwrap(), "-0.5 0.0 0.5");
        assert_eq!(all("0", "1", "0.25").unwrap(), "0.00 0.25 0.50 0.75 1.00");
        for (low, high, step) in [
            ("a", "1", "1"),
            ("1", "2", "0"),
            ("2", "1", "1"),
            ("0", "1", "."),
            ("", "1", "1"),
            ("0", "99", "1"),
        ] {
            assert!(all(low, high, step).is_err(), "{low} {high} {step}");
        }
    }

    #[test]
    fn only_names_of_parameters_are_replaced() {
        let values = vec![("n".to_owned(), "3".to_owned()), ("cc".to_owned(), "gcc".to_owned())];
        let text = filled(OsStr::new("{cc} -j{n} {x} ${n} {n}"), &values);
        assert_eq!(text, "gcc -j3 {x} $3 3");
    }
}
