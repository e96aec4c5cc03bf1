//! Any result, field by field, below its pictures where it has some. Lists of flat objects are tables, what is
//! not flat is unfolded part by part, what is deep or long is cut and says so.

use askama::Template;
use askama::filters::HtmlSafe;
use serde_json::{Map, Value};

use super::number::{Number, amount};
use super::parts::Part;
use crate::machine::survey::{Entry, Survey, SurveyRow};
use crate::model::{Measurement, Unit};
use crate::report::words::grouped;

/// Items of a list that are shown.
const MOST_ITEMS: usize = 100;
/// Fields that are shown in all: the page stays small whatever the document holds.
const MOST_FIELDS: usize = 6000;
/// The same where pictures stand above them.
const MOST_FIELDS_BELOW: usize = 3000;
/// Columns of a table; wider objects are shown one by one.
const MOST_COLUMNS: usize = 9;
/// Levels that are shown.
const MOST_DEPTH: usize = 8;
/// Parts down to this level are unfolded.
const OPEN_DEPTH: usize = 2;
/// Fields that name what they belong to.
const NAMING: [&str; 9] =
    ["name", "title", "program", "place", "probe", "id", "mechanism", "unit", "decision"];
/// The texts of an item that it is called by, and the characters of each.
const TEXTS_OF_A_NAME: usize = 3;
const MOST_OF_A_NAME: usize = 60;
/// A text of more characters is a sentence.
const LONG: usize = 30;
/// Characters of a text that are shown.
const MOST_CHARACTERS: usize = 600;

/// The page.
#[derive(Template)]
#[template(path = "fields.html")]
pub(super) struct FieldsPage {
    pub title: String,
    pub kind: String,
    pub tool_version: String,
    parts: Vec<Part>,
    result: Node,
}

/// A value of the document.
#[derive(Debug, Template)]
#[template(path = "node.html")]
enum Node {
    One(Number),
    Measured(Number),
    Object { fields: Vec<(String, Node)>, parts: Vec<Fold> },
    Table { head: Vec<String>, rows: Vec<Vec<Node>>, left_out: usize },
    List { parts: Vec<Fold>, left_out: usize },
}

impl HtmlSafe for Node {}

/// A part of a value that is unfolded by itself.
#[derive(Debug)]
struct Fold {
    name: String,
    node: Node,
    is_open: bool,
}

impl FieldsPage {
    /// The pictures first, where there are some.
    pub fn of(kind: String, tool_version: String, parts: Vec<Part>, result: &Value) -> Self {
        let mut left = if parts.is_empty() { MOST_FIELDS } else { MOST_FIELDS_BELOW };
        let result = node(result, "result", 0, &mut left);
        Self { title: kind.clone(), kind, tool_version, parts, result }
    }

    /// Machines side by side: a row for each fact.
    pub fn of_survey(kind: String, tool_version: String, survey: &Survey) -> Self {
        let row = |(n, row): (usize, &SurveyRow)| {
            let path = |part: &str| format!("result.rows[{n}].{part}");
            let told = [("id", &row.id), ("relation", &row.relation.to_string())]
                .map(|(part, text)| Node::One(Number::new(text.clone(), path(part))));
            let entry = |(m, entry): (usize, &Option<Entry>)| {
                let text = entry.as_ref().map_or("-", |entry| entry.text.as_str());
                Node::One(Number::new(text, path(&format!("machines[{m}]"))))
            };
            told.into_iter().chain(row.machines.iter().enumerate().map(entry)).collect()
        };
        let rows = survey.rows.iter().enumerate().map(row).collect();
        let head = ["fact", "relation"].map(str::to_owned);
        let head = head.into_iter().chain(survey.machines.iter().cloned()).collect();
        Self {
            title: kind.clone(),
            kind,
            tool_version,
            parts: Vec::new(),
            result: Node::Table { head, rows, left_out: 0 },
        }
    }
}

fn node(value: &Value, path: &str, depth: usize, left: &mut usize) -> Node {
    if *left == 0 || depth > MOST_DEPTH {
        return Node::One(Number::new("… (in the JSON)", path));
    }
    *left -= 1;
    match (value, measurement(value)) {
        (_, Some(m)) => Node::Measured(Number::of(&m, path)),
        (Value::Object(fields), _) => object(fields, path, depth, left),
        (Value::Array(items), _) if !is_leaf(value) => list(items, path, depth, left),
        (leaf, _) => Node::One(scalar(leaf, path)),
    }
}

/// Whether a value is one line: no object, and no list but one of such lines.
fn is_leaf(value: &Value) -> bool {
    match value {
        Value::Object(fields) => fields.is_empty() || measurement(value).is_some(),
        Value::Array(items) => items.iter().all(|item| !item.is_object() && !item.is_array()),
        _ => true,
    }
}

fn object(fields: &Map<String, Value>, path: &str, depth: usize, left: &mut usize) -> Node {
    let is_nothing = |value: &Value| value.is_null() || value.as_array().is_some_and(Vec::is_empty);
    let there = fields.iter().filter(|(_, value)| !is_nothing(value)).take(MOST_ITEMS);
    let (leaves, parts): (Vec<_>, Vec<_>) = there.partition(|(_, value)| is_leaf(value));
    let mut child = |(name, value): (&String, &Value)| {
        (words(name), node(value, &format!("{path}.{name}"), depth + 1, left))
    };
    let fields = leaves.into_iter().map(&mut child).collect();
    let parts = parts.into_iter().map(child);
    let part = |(name, node)| {
        let is_open = depth < OPEN_DEPTH || matches!(node, Node::Table { .. });
        Fold { name, node, is_open }
    };
    Node::Object { fields, parts: parts.map(part).collect() }
}

fn list(items: &[Value], path: &str, depth: usize, left: &mut usize) -> Node {
    let left_out = items.len().saturating_sub(MOST_ITEMS);
    let shown = &items[..items.len() - left_out];
    let objects: Vec<&Map<String, Value>> = shown.iter().filter_map(Value::as_object).collect();
    let mut head: Vec<&String> = Vec::new();
    for name in objects.iter().flat_map(|object| object.keys()) {
        if head.len() <= MOST_COLUMNS && !head.contains(&name) {
            head.push(name);
        }
    }
    let is_table = objects.len() == shown.len()
        && head.len() <= MOST_COLUMNS
        && objects.iter().flat_map(|object| object.values()).all(is_leaf)
        && !shown.iter().all(is_leaf);
    if !is_table {
        let mut part = |(n, item): (usize, &Value)| Fold {
            name: named(item).unwrap_or_else(|| format!("{}", n + 1)),
            node: node(item, &format!("{path}[{n}]"), depth + 1, left),
            is_open: shown.len() == 1 || is_leaf(item),
        };
        return Node::List { parts: shown.iter().enumerate().map(&mut part).collect(), left_out };
    }
    let mut row = |(n, object): (usize, &&Map<String, Value>)| {
        let cell = |name: &&String| {
            let value = object.get(*name).unwrap_or(&Value::Null);
            node(value, &format!("{path}[{n}].{name}"), depth + 1, left)
        };
        head.iter().map(cell).collect()
    };
    let rows = objects.iter().enumerate().map(&mut row).collect();
    Node::Table { head: head.iter().map(|name| words(name)).collect(), rows, left_out }
}

/// What an item of a list is called: by the fields that name it, else by its first texts.
fn named(item: &Value) -> Option<String> {
    let fields = item.as_object()?;
    let naming = NAMING.iter().filter_map(|name| fields.get(*name)?.as_str());
    let naming = naming.filter(|text| !text.is_empty());
    let texts: Vec<&str> = naming.take(TEXTS_OF_A_NAME).collect();
    let texts = match texts.is_empty() {
        true => fields.values().filter_map(Value::as_str).take(TEXTS_OF_A_NAME).collect(),
        false => texts,
    };
    let texts: Vec<String> = texts.into_iter().map(|text| clipped(text, MOST_OF_A_NAME)).collect();
    (!texts.is_empty()).then(|| texts.join(" · "))
}

/// A text up to so many characters.
fn clipped(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// A value that is a number with its interval.
fn measurement(value: &Value) -> Option<Measurement> {
    value.get("how")?;
    serde_json::from_value(value.clone()).ok()
}

fn scalar(value: &Value, path: &str) -> Number {
    let text = match (value, value.as_f64()) {
        (Value::Null, _) => "-".to_owned(),
        (Value::Bool(true), _) => "yes".into(),
        (Value::Bool(false), _) => "no".into(),
        (Value::String(text), _) => clipped(text, MOST_CHARACTERS),
        (Value::Array(items), _) if items.is_empty() => "-".into(),
        (Value::Object(fields), _) if fields.is_empty() => "-".into(),
        (Value::Array(items), _) => {
            let shown = items.iter().take(MOST_ITEMS).map(|item| scalar(item, path).text);
            let more = items.len().saturating_sub(MOST_ITEMS);
            let more = (more > 0).then(|| format!("and {more} more, which are in the JSON"));
            let parts: Vec<String> = shown.chain(more).collect();
            // Sentences stand each on a line of its own.
            let is_long = parts.iter().any(|part| part.chars().count() > LONG);
            parts.join(if is_long { "\n" } else { ", " })
        }
        (_, Some(number)) if path.ends_with("_ns") => amount(number, Unit::Nanoseconds),
        (_, Some(number)) if path.ends_with("_bytes") => amount(number, Unit::Bytes),
        (Value::Number(number), Some(float)) => match number.as_u64() {
            Some(whole) if whole < 10_000_000_000 => grouped(whole),
            Some(address) => format!("{address:#x}"),
            None => format!("{float:.4}"),
        },
        (other, _) => other.to_string(),
    };
    Number::new(text, path)
}

/// A field's name as words.
pub(super) fn words(name: &str) -> String {
    let name = clipped(name, MOST_OF_A_NAME);
    name.trim_end_matches("_ns").trim_end_matches("_bytes").replace('_', " ")
}
