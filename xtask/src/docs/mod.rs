//! `cargo xtask docs`: builds all docs, and checks what is in them.

mod html;
mod items;
mod markdown;
mod picture;
mod spelling;
mod symbols;

use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

use crate::workspace::{self, Workspace};
use items::{Item, Share};

/// The features whose items the docs show.
const FEATURES: &str = "vulkan,rpc,blas";

/// The least share of items with an example, in percent; of structs, enums and traits it is all.
const LEAST: usize = 25;

#[derive(Debug, clap::Args)]
pub(crate) struct DocsArguments {
    /// List the items without an example
    #[arg(long)]
    missing: bool,
}

#[expect(clippy::print_stdout, reason = "the chore's result")]
pub(crate) fn run(arguments: &DocsArguments) -> Result<()> {
    let workspace = Workspace::find()?;
    let folder = build(&workspace)?;
    let items = items::read(&workspace)?;
    let pages = markdown::pages(&workspace.root)?;
    let all_links = [html::check(&folder)?, markdown::check(&pages)?, symbols::check(&workspace.root, &pages)?];
    let broken: Vec<_> = all_links.iter().flat_map(|links| &links.broken).collect();
    for link in &broken {
        println!("docs: broken: {link}");
    }
    spelling::check(&workspace)?;
    picture::take(&workspace, &folder)?;

    if arguments.missing {
        for item in items.iter().filter(|item| !item.has_example) {
            println!("docs: no example: {} {}", item.kind, item.path);
        }
    }
    let all = Share::of(&items, |_| true);
    let [structs, methods] = [Item::is_type, Item::is_method].map(|is| Share::of(&items, is));
    let guide = guide_pages(&workspace)?;
    println!(
        "docs: guide={guide} pages items_with_example={all} structs={structs} methods={methods} links={} broken_links={}",
        all_links.iter().map(|links| links.checked).sum::<usize>(),
        broken.len()
    );
    ensure!(broken.is_empty(), "{} links are broken; they are listed above", broken.len());
    ensure!(structs.is_all(), "structs, enums and traits lack an example: `cargo xtask docs --missing` lists them");
    ensure!(all.percent() >= LEAST && methods.percent() >= LEAST, "less than {LEAST}% have an example");
    Ok(())
}

/// Builds the HTML with warnings denied, without what earlier builds left. Compiles no C.
fn build(workspace: &Workspace) -> Result<PathBuf> {
    let folder = workspace.root.join("target/doc");
    if folder.exists() {
        fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()))?;
    }
    // rustdoc links to the crates whose folders exist. cargo removes a crate's folder before it runs rustdoc for it, so it does
    // one crate at a time.
    for library in libraries(workspace)? {
        fs::create_dir_all(folder.join(library))?;
    }
    let mut command = workspace.cargo(&workspace.root);
    command.args(["doc", "--jobs", "1", "--no-deps", "--workspace", "--features", FEATURES]);
    command.env("DOCS_RS", "1").env("RUSTDOCFLAGS", "-Dwarnings");
    workspace::check(&mut command)?;
    Ok(folder)
}

/// The names of the workspace's libraries.
fn libraries(workspace: &Workspace) -> Result<Vec<String>> {
    let mut command = workspace.cargo(&workspace.root);
    let output = command.args(["metadata", "--no-deps", "--format-version", "1"]).output()?;
    ensure!(output.status.success(), "{command:?} failed: {}", String::from_utf8_lossy(&output.stderr));
    let Metadata { packages } = serde_json::from_slice(&output.stdout)?;
    let libraries = packages.into_iter().flat_map(|package| package.targets);
    Ok(libraries.filter(|target| target.kind.iter().any(|kind| kind == "lib")).map(|target| target.name).collect())
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    targets: Vec<Target>,
}

#[derive(Deserialize)]
struct Target {
    kind: Vec<String>,
    name: String,
}

/// The number of the guide's pages, all of which must be in the docs.
fn guide_pages(workspace: &Workspace) -> Result<usize> {
    let guide = fs::read_to_string(workspace.root.join("src/guide.rs"))?;
    let pages = markdown::files(&workspace.root.join("docs/guide"))?;
    for page in &pages {
        let name = page.file_name().and_then(|name| name.to_str()).context("a page's name")?;
        ensure!(guide.contains(&format!("\"{name}\"")), "src/guide.rs lacks docs/guide/{name}");
    }
    Ok(pages.len())
}
