//! The meshes: three generated ones of about 40,000 triangles, whose
//! decoded indices fit a second-level cache, and one from a file.

use std::path::Path;

use anyhow::{Context as _, bail, ensure};
use stallscope::foreign;

/// A mesh and what it is called.
pub struct Mesh {
    /// For the screen.
    pub name: String,
    /// Three per triangle.
    pub indices: Vec<u32>,
}

const STRIP_COUNT: u32 = 40;
const TRIANGLES_PER_STRIP: u32 = 1000;
const GRID_CELLS_PER_SIDE: u32 = 144;
/// Cells in a row of a band: with a few more than the 16 vertices that are remembered, the row
/// before would have been forgotten.
const BAND_CELLS: u32 = 6;
const RANDOM_TRIANGLES: usize = 40_000;
const RANDOM_VERTICES: u64 = 20_000;
/// Larger files than this are no models that anybody decodes at once.
const MOST_FILE_BYTES: u64 = 128 << 20;
/// Nor are larger meshes.
const MOST_TRIANGLES: usize = 4 << 20;

/// Strips, a grid, and random triangles.
pub fn generated() -> Vec<Mesh> {
    let mesh = |name: &str, indices| Mesh { name: name.into(), indices };
    vec![mesh("strips", strips()), mesh("grid", grid()), mesh("random", random())]
}

/// Strips in which each triangle shares an edge with the one before.
fn strips() -> Vec<u32> {
    let mut indices = Vec::new();
    for strip in 0..STRIP_COUNT {
        let base = strip * (TRIANGLES_PER_STRIP + 2);
        for i in base..base + TRIANGLES_PER_STRIP {
            // Every other triangle is turned over so that all face the same way.
            let flip = (i - base) % 2;
            indices.extend([i + flip, i + 1 - flip, i + 2]);
        }
    }
    indices
}

/// A square grid in narrow bands, so that edges and vertices are still remembered one row later.
/// Vertices are numbered in the order of their first use, as a renderer wants it.
fn grid() -> Vec<u32> {
    let stride = GRID_CELLS_PER_SIDE + 1;
    let mut indices = Vec::new();
    for band in (0..GRID_CELLS_PER_SIDE).step_by(BAND_CELLS as usize) {
        for y in 0..GRID_CELLS_PER_SIDE {
            for x in band..band + BAND_CELLS {
                let corner = y * stride + x;
                let (right, below) = (corner + 1, corner + stride);
                indices.extend([corner, right, below, right, below + 1, below]);
            }
        }
    }
    let mut numbers = vec![None; (stride * stride) as usize];
    let mut next = 0..;
    for index in &mut indices {
        let number = &mut numbers[*index as usize];
        *index = *number.get_or_insert_with(|| next.next().unwrap_or(0));
    }
    indices
}

fn random() -> Vec<u32> {
    let mut state = 1_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        ((state >> 33) % RANDOM_VERTICES) as u32
    };
    (0..3 * RANDOM_TRIANGLES).map(|_| next()).collect()
}

/// The triangles of a file, in its order.
///
/// # Errors
/// When it cannot be read, is neither ASCII PLY nor OBJ, or is damaged; the message names file and
/// line.
pub fn from_file(path: &Path) -> anyhow::Result<Mesh> {
    let named = || format!("the mesh {}", path.display());
    let bytes = foreign::read(path, MOST_FILE_BYTES).with_context(named)?;
    let text = std::str::from_utf8(&bytes)
        .ok()
        .with_context(|| format!("{} is not text; only ASCII PLY and OBJ are read", named()))?;
    let indices = if text.starts_with("ply") { ply(text) } else { obj(text) };
    let indices = indices.with_context(named)?;
    ensure!(!indices.is_empty(), "{} has no triangles; is it an ASCII PLY or OBJ file?", named());
    let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    Ok(Mesh { name, indices })
}

fn ply(text: &str) -> anyhow::Result<Vec<u32>> {
    let (head, body) = text.split_once("end_header").context("the PLY header does not end")?;
    ensure!(head.contains("format ascii"), "it is a binary PLY file; only ASCII ones are read");
    let count = |element: &str| {
        let line = head.lines().find_map(|line| line.strip_prefix(element));
        line.and_then(|n| n.trim().parse::<usize>().ok())
            .with_context(|| format!("the PLY header has no `{element} N`"))
    };
    let (vertices, faces) = (count("element vertex")?, count("element face")?);
    let mut indices = Vec::new();
    let mut lines = body.lines().enumerate().skip(1).skip(vertices);
    for _ in 0..faces {
        let (number, line) = lines.next().context("it ends before its last face")?;
        let words: Vec<&str> = line.split_whitespace().collect();
        let corners = words.first().and_then(|n| n.parse::<usize>().ok()).unwrap_or(0);
        let corners = words.get(1..=corners).unwrap_or_default();
        let face: Result<Vec<u32>, _> = corners.iter().map(|w| w.parse()).collect();
        let Some(face) = face.ok().filter(|f| f.len() >= 3) else {
            bail!("line {} behind the header is no face: `{line}`", number);
        };
        ensure!(face.iter().all(|i| (*i as usize) < vertices), "`{line}` names no vertex");
        fan(&face, &mut indices)?;
    }
    Ok(indices)
}

fn obj(text: &str) -> anyhow::Result<Vec<u32>> {
    let (mut indices, mut vertices) = (Vec::new(), 0_i64);
    for (number, line) in text.lines().enumerate() {
        let mut words = line.split_whitespace();
        match words.next() {
            Some("v") => vertices += 1,
            Some("f") => {
                // Counted from 1, or backwards from the last one; texture and normal follow a slash.
                let corner = |word: &str| {
                    let index: i64 = word.split('/').next()?.parse().ok()?;
                    let index = if index < 0 { vertices + index } else { index - 1 };
                    u32::try_from(index).ok().filter(|i| i64::from(*i) < vertices)
                };
                let face: Option<Vec<u32>> = words.map(corner).collect();
                let Some(face) = face.filter(|f| f.len() >= 3) else {
                    bail!("line {} is no face of vertices before it: `{line}`", number + 1);
                };
                fan(&face, &mut indices)?;
            }
            _ => {}
        }
    }
    Ok(indices)
}

/// A polygon as triangles around its first corner.
fn fan(face: &[u32], indices: &mut Vec<u32>) -> anyhow::Result<()> {
    let triangles = indices.len() / 3 + face.len() - 2;
    ensure!(triangles <= MOST_TRIANGLES, "it has more than 4 million triangles");
    for pair in face[1..].windows(2) {
        indices.extend([face[0], pair[0], pair[1]]);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_meshes_are_about_as_large() {
        for mesh in generated() {
            let triangles = mesh.indices.len() / 3;
            assert!((40_000..42_000).contains(&triangles), "{}: {triangles}", mesh.name);
        }
    }

    #[test]
    fn both_formats_are_read_and_polygons_are_cut() {
        let ply_text = "ply\nformat ascii 1.0\nelement vertex 4\nelement face 2\nend_header\n\
                        0 0 0\n1 0 0\n1 1 0\n0 1 0\n3 0 1 2\n4 0 1 2 3\n";
        assert_eq!(ply(ply_text).unwrap(), [0, 1, 2, 0, 1, 2, 0, 2, 3]);
        let obj_text = "# x\nv 0 0 0\nv 1 0 0\nv 1 1 0\nf 1/1 2/2/2 3//3\nf -3 -2 -1\n";
        assert_eq!(obj(obj_text).unwrap(), [0, 1, 2, 0, 1, 2]);
    }

    #[test]
    fn broken_files_are_refused_with_a_word() {
        let said = |r: anyhow::Result<Vec<u32>>| r.unwrap_err().to_string();
        assert!(said(ply("ply\n")).contains("header"));
        assert!(said(ply("ply\nformat binary\nend_header\n")).contains("binary"));
        let head = "ply\nformat ascii 1.0\nelement vertex 1\nelement face 1\nend_header\n0 0 0\n";
        assert!(said(ply(head)).contains("ends before"));
        assert!(said(ply(&format!("{head}3 0 0 9\n"))).contains("no vertex"));
        assert!(said(ply(&format!("{head}3 0 0\n"))).contains("no face"));
        assert!(said(obj("v 0 0 0\nf 1 2 3\n")).contains("line 2"));
        let folder = tempfile::tempdir().unwrap();
        let missing = from_file(&folder.path().join("none.obj")).err().unwrap();
        assert!(format!("{missing:#}").contains("none.obj"));
        let binary = folder.path().join("b.ply");
        std::fs::write(&binary, [0xff, 0xfe, 0]).unwrap();
        assert!(from_file(&binary).err().unwrap().to_string().contains("not text"));
    }
}
