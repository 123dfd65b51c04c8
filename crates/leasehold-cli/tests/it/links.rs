//! Links of the pages: each leads to a file and to a heading that exist, on the forge and on the site.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

use pulldown_cmark::{Event, LinkType, Options, Parser, Tag, TagEnd};

use crate::pages::{Page, pages, root};

/// A page as the forge shows it.
struct Read {
    name: PathBuf,
    links: Vec<String>,
    anchors: BTreeSet<String>,
}

fn options() -> Options {
    Options::ENABLE_TABLES | Options::ENABLE_FOOTNOTES | Options::ENABLE_STRIKETHROUGH
}

impl Read {
    fn of(page: &Page) -> Self {
        let (mut links, mut anchors) = (Vec::new(), Anchors::default());
        let mut heading = None::<String>;
        for event in Parser::new_ext(&page.text, options()) {
            match event {
                Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
                Event::End(TagEnd::Heading(_)) => anchors.add(&heading.take().unwrap_or_default()),
                Event::Text(text) | Event::Code(text) => {
                    if let Some(heading) = &mut heading {
                        *heading += &text;
                    }
                }
                Event::Start(
                    Tag::Link {
                        dest_url,
                        link_type,
                        ..
                    }
                    | Tag::Image {
                        dest_url,
                        link_type,
                        ..
                    },
                ) if link_type != LinkType::Email => links.push(dest_url.into_string()),
                _ => {}
            }
        }
        Self {
            name: page.name.clone().into(),
            links,
            anchors: anchors.all,
        }
    }
}

/// The names of headings, by the rules of GitHub.
#[derive(Default)]
struct Anchors {
    all: BTreeSet<String>,
    seen: BTreeMap<String, usize>,
}

impl Anchors {
    fn add(&mut self, heading: &str) {
        let kept = |c: &char| c.is_alphanumeric() || "-_ ".contains(*c);
        let name: String = heading.to_lowercase().chars().filter(kept).collect();
        let name = name.trim().replace(' ', "-");
        let before = self.seen.entry(name.clone()).or_default();
        self.all.insert(match *before {
            0 => name,
            n => format!("{name}-{n}"),
        });
        *before += 1;
    }
}

/// Why the link does not lead anywhere, if so. `found` are all pages.
fn wrong(from: &Path, link: &str, found: &BTreeMap<PathBuf, Read>) -> Option<&'static str> {
    if link.contains("://") {
        // The library's reference is made of the code, and is no page of ours.
        let ours = link.contains("leasehold") && !link.starts_with("https://docs.rs/leasehold/");
        return ours.then_some("link to our own pages by their paths");
    }
    let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
    if path.starts_with('/') {
        return Some("begin with a name, or with ..");
    }
    let to = match path {
        "" => from.to_owned(),
        _ => plain(&from.with_file_name(path)),
    };
    match found.get(&to) {
        None if !root().join(&to).exists() => Some("there is no such file"),
        _ if anchor.is_empty() => None,
        None => Some("it is no page, so it has no headings"),
        Some(page) if page.anchors.contains(anchor) => None,
        Some(_) => Some("there is no such heading"),
    }
}

/// Without `..`.
fn plain(path: &Path) -> PathBuf {
    path.components()
        .fold(PathBuf::new(), |mut plain, component| {
            match component {
                Component::ParentDir => drop(plain.pop()),
                other => plain.push(other),
            }
            plain
        })
}

/// The pages, and those beside them that only people read.
fn all() -> BTreeMap<PathBuf, Read> {
    let mut pages = pages();
    for name in ["CHANGELOG.md", "bench/README.md"] {
        let text = fs::read_to_string(root().join(name)).expect("the page is there");
        pages.push(Page::new(name, text));
    }
    let read = pages.iter().map(Read::of);
    read.map(|page| (page.name.clone(), page)).collect()
}

fn complaints(page: &Read, found: &BTreeMap<PathBuf, Read>) -> Vec<String> {
    let wrong = |link: &String| Some((link.clone(), wrong(&page.name, link, found)?));
    let wrong = page.links.iter().filter_map(wrong);
    wrong
        .map(|(link, why)| format!("{}: {link}: {why}", page.name.display()))
        .collect()
}

#[test]
fn every_link_leads_to_a_file_and_a_heading() {
    let found = all();
    let links: usize = found.values().map(|page| page.links.len()).sum();
    assert!(links > 300, "links are found: {links}");
    let wrong = found.values().flat_map(|page| complaints(page, &found));
    let wrong: Vec<_> = wrong.collect();
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn a_broken_link_is_seen() {
    let text = "# `a_b` and C-d, e?\n# Twice\n# Twice\n[ok](#a_b-and-c-d-e) [ok](#twice-1)\n\
        [ok](../SAFETY.md#the-command) [ok](https://redis.io/a#b) `[no](link)`\n\
        [1](#twice-2) [2](gone.md) [3](/README.md) [4](https://forge.example/leasehold/)\n\
        [5](../README.md#gone) [6](../Cargo.toml#workspace) ![7](gone.png) [8][r]\n\n\
        [r]: ../gone.md\n\n```sh\n[no](link)\n```\n";
    let page = Page::new("docs/new.md", text);
    let mut found = all();
    let read = Read::of(&page);
    found.insert(read.name.clone(), Read::of(&page));
    let seen = complaints(&read, &found);
    let links: Vec<_> = seen.iter().filter_map(|it| it.split(": ").nth(1)).collect();
    let expected = "#twice-2 gone.md /README.md https://forge.example/leasehold/ \
        ../README.md#gone ../Cargo.toml#workspace gone.png ../gone.md";
    assert_eq!(links.join(" "), expected, "{seen:#?}");
}

/// The names of the list, with `*` for the other pages of a directory.
fn listed() -> Vec<String> {
    let list = include_str!("../../../../docs/site/pages.txt");
    let lines = list.lines().filter(|line| !line.starts_with(['#', '[']));
    let lines = lines.map(|line| line.trim().to_owned());
    lines.filter(|line| !line.is_empty()).collect()
}

#[test]
fn the_site_has_every_page_once() {
    let listed = listed();
    let found = all().into_keys().map(|page| page.display().to_string());
    let found: BTreeSet<_> = found.collect();
    let directories = listed.iter().filter_map(|name| name.strip_suffix('*'));
    let directories: Vec<_> = directories.collect();
    let of_a_directory = |page: &str| {
        let directory = page.rfind('/').map_or("", |at| &page[..=at]);
        directories.contains(&directory)
    };
    let is_orphan = |page: &&String| !listed.contains(page) && !of_a_directory(page);
    let orphans: Vec<_> = found.iter().filter(is_orphan).collect();
    let add = "add these to docs/site/pages.txt";
    assert!(orphans.is_empty(), "{add}: {orphans:?}");
    let named: Vec<_> = listed.iter().filter(|name| !name.ends_with('*')).collect();
    let is_gone = |name: &&&String| !found.contains(**name);
    let gone: Vec<_> = named.iter().filter(is_gone).collect();
    let names = "docs/site/pages.txt names what is not there";
    assert!(gone.is_empty(), "{names}: {gone:?}");
    let once: BTreeSet<_> = listed.iter().collect();
    assert_eq!(once.len(), listed.len(), "each is named once");
}

#[test]
fn a_page_has_one_title_and_it_is_its_first_line() {
    for page in pages() {
        let first = page.text.lines().next().unwrap_or_default();
        assert!(first.starts_with("# "), "{}: {first}", page.name);
        let titles = Parser::new_ext(&page.text, options());
        let is_title = |event: &Event<'_>| {
            matches!(event, Event::Start(Tag::Heading { level, .. })
                if *level == pulldown_cmark::HeadingLevel::H1)
        };
        assert_eq!(titles.filter(is_title).count(), 1, "{}", page.name);
    }
}
