//! Random models by both, draw by draw, in a process of its own: llama.cpp ends the process for models that it can't compute.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader, Read as _, Seek as _, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::draw::{Action, Draw, draw};
use crate::listed::{Difference, LISTED, reason};
use crate::ours::Ours;
use llama_reference::{Llama, Result};

/// The first argument of the process that computes draws.
pub const ARGUMENT: &str = "--draws";

/// What came of all draws.
#[derive(Debug, Default)]
pub struct Found {
    pub same: usize,
    /// Differences for each reason of the list.
    pub listed: BTreeMap<usize, usize>,
    /// The seeds of those without a reason.
    pub unlisted: Vec<u64>,
    /// What llama.cpp can't load or compute, by what it says.
    pub redrawn: BTreeMap<String, usize>,
    pub families: BTreeSet<String>,
}

impl Found {
    pub fn compared(&self) -> usize {
        self.same + self.listed.values().sum::<usize>() + self.unlisted.len()
    }
}

/// Compares `wanted` draws; the first seed is `seed`, and each draw has the next.
pub fn check(wanted: usize, mut seed: u64) -> Result<Found> {
    let mut found = Found::default();
    while found.compared() < wanted {
        let more = (wanted - found.compared()).to_string();
        let mut command = Command::new(std::env::current_exe()?);
        command.args([ARGUMENT, &seed.to_string(), &more]).env("GGML_NO_BACKTRACE", "1").stdout(Stdio::piped());
        let mut said = tempfile::tempfile()?;
        command.stderr(said.try_clone()?);
        let mut child = command.spawn()?;
        let mut stage = String::new();
        for line in child.stdout.take().into_iter().flat_map(|out| BufReader::new(out).lines()) {
            let line = line?;
            let (what, rest) = line.split_once(' ').unwrap_or((&line, ""));
            match what {
                "draw" => seed = rest.parse()?,
                "family" => drop(found.families.insert(rest.to_owned())),
                "same" => found.same += 1,
                "listed" => *found.listed.entry(rest.parse()?).or_default() += 1,
                "refused" => *found.redrawn.entry(rest.to_owned()).or_default() += 1,
                "differs" => {
                    println!("random: seed {seed}: {rest}");
                    found.unlisted.push(seed);
                }
                _ => {}
            }
            if wanted == 1 && what != "draw" {
                println!("random: seed {seed}: {line}");
            }
            stage = what.to_owned();
        }
        let status = child.wait()?;
        match &*stage {
            _ if status.success() => {}
            // It was aborted: a panic has a code.
            "draw" if status.code().is_none() => {
                let why = assertion(&mut said)?.unwrap_or_else(|| status.to_string());
                *found.redrawn.entry(why).or_default() += 1;
            }
            "ours" => {
                let why = assertion(&mut said)?.unwrap_or_default();
                println!("random: seed {seed}: the process of this crate ended: {status} {why}");
                found.unlisted.push(seed);
            }
            _ => return Err(format!("the process of random models ended after `{stage}`: {status}").into()),
        }
        seed = seed.wrapping_add(1);
    }
    Ok(found)
}

/// What a process said that was aborted, without the path of the file.
fn assertion(said: &mut std::fs::File) -> Result<Option<String>> {
    said.rewind()?;
    let mut text = String::new();
    said.read_to_string(&mut text)?;
    let places = [".c:", ".cpp:", ".h:", "panicked"];
    let line = text.lines().find(|line| places.iter().any(|place| line.contains(place)));
    Ok(line.map(|line| line.rsplit('/').next().unwrap_or(line).to_owned()))
}

/// Prints what was found.
pub fn report(found: &Found) {
    for (why, n) in &found.redrawn {
        println!("random: redrawn={n}: {why}");
    }
    for (index, n) in &found.listed {
        println!("random: listed={n}: {}", LISTED.get(*index).map_or("", |listed| listed.reason));
    }
    for seed in &found.unlisted {
        println!("random: repeat it: cargo xtask llm-check random --random 1 --seed {seed}");
    }
}

/// The process that computes draws until `wanted` are compared.
pub fn compute(mut seed: u64, wanted: usize) -> Result<()> {
    llama_reference::start();
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("model.gguf");
    let mut compared = 0;
    while compared < wanted {
        say(&format!("draw {seed}"))?;
        let draw = draw(seed);
        if wanted == 1 {
            say(&format!("is {draw:?}"))?;
            say(&format!("draw {seed}"))?;
        }
        draw.recipe.write(&file)?;
        match theirs(&draw, &file) {
            Err(error) => say(&format!("refused {error}"))?,
            Ok(logits) if logits.iter().any(|x| !x.is_finite()) => say("refused logits that are not finite")?,
            Ok(logits) => {
                say(&format!("family {}", draw.recipe.architecture))?;
                say("ours")?;
                let difference = match ours(&draw, &file) {
                    Ok(ours) => Difference::of(&logits, &ours),
                    Err(error) => Some(Difference::Refused(error.to_string())),
                };
                match difference.map(|difference| (reason(&draw, &difference), difference)) {
                    None => say("same")?,
                    Some((Some(index), _)) => say(&format!("listed {index}"))?,
                    Some((None, difference)) => say(&format!("differs {draw}: {difference}"))?,
                }
                compared += 1;
            }
        }
        seed = seed.wrapping_add(1);
    }
    Ok(())
}

/// A line for the other process.
fn say(line: &str) -> Result<()> {
    let mut out = std::io::stdout();
    writeln!(out, "{}", line.replace('\n', " "))?;
    Ok(out.flush()?)
}

/// The logits of the whole script.
fn theirs(draw: &Draw, file: &Path) -> Result<Vec<f32>> {
    let mut llama = Llama::open(file, &draw.options)?;
    let mut logits = Vec::new();
    for action in &draw.actions {
        match action {
            Action::Decode(tokens) => logits.extend(llama.decode(tokens)?.concat()),
            Action::Shift(sequence, keep, n) => llama.shift(*sequence, *keep, *n)?,
            Action::Truncate(sequence, from) => llama.remove(*sequence, *from, -1)?,
            Action::Share(from, to, n) => llama.share(*from, *to, *n),
        }
    }
    Ok(logits)
}

fn ours(draw: &Draw, file: &Path) -> Result<Vec<f32>> {
    let mut ours = Ours::open(file, &draw.options, false)?;
    let mut logits = Vec::new();
    for action in &draw.actions {
        match action {
            Action::Decode(tokens) => logits.extend(ours.decode(tokens)?.concat()),
            Action::Shift(sequence, keep, n) => ours.shift(*sequence, *keep, *n)?,
            Action::Truncate(sequence, from) => ours.truncate(*sequence, *from)?,
            Action::Share(from, to, n) => ours.share(*from, *to, *n)?,
        }
    }
    Ok(logits)
}
