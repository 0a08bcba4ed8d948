//! The parser's events as a tree, with anchors tied to the nodes they name. Nothing is interpreted yet.

use std::borrow::Cow;
use std::collections::HashMap;

use granit_parser::{ErrorKind, Event, Parser, ScalarStyle, Tag};

use super::{Error, Limits};

/// Index of a node in its tree.
pub(super) type Id = u32;

/// The first document of a text.
pub(super) struct Tree<'a> {
    nodes: Vec<Node<'a>>,
    /// None for a text without a document.
    pub(super) root: Option<Id>,
}

/// A node and where it starts.
pub(super) struct Node<'a> {
    pub(super) kind: Kind<'a>,
    line: u32,
    column: u32,
}

pub(super) enum Kind<'a> {
    Scalar {
        text: Cow<'a, str>,
        /// The full tag, such as `tag:yaml.org,2002:str`; empty for none.
        tag: String,
        /// Neither quoted nor a block.
        plain: bool,
    },
    Sequence(Vec<Id>),
    /// Keys and values in turn.
    Mapping(Vec<Id>),
    Alias(Id),
}

impl Tree<'_> {
    pub(super) fn kind(&self, id: Id) -> &Kind<'_> {
        &self.nodes[id as usize].kind
    }

    /// An error at a node.
    pub(super) fn error(&self, id: Id, message: impl Into<String>) -> Error {
        let node = &self.nodes[id as usize];
        Error::new(node.line as usize, node.column as usize, message)
    }

    /// A node that is one too many.
    pub(super) fn limit(&self, id: Id, message: impl Into<String>) -> Error {
        let node = &self.nodes[id as usize];
        Error::limit(node.line as usize, node.column as usize, message)
    }
}

/// Reads the events of the first document of a text that starts on `first_line` of its file.
pub(super) fn read<'a>(text: &'a str, first_line: usize, limits: &Limits) -> Result<Tree<'a>, Error> {
    let options = granit_parser::options! {
        emit_comments: false,
        bom_inside_document_as_content: true,
        block_scalar_eof_without_line_feed: true,
        flow_nesting_limit: limits.depth + 1,
        block_nesting_limit: limits.depth + 1,
    };
    let mut nodes: Vec<Node<'a>> = Vec::new();
    let mut anchors: HashMap<usize, Id> = HashMap::new();
    // Collections whose end has not come yet, with their children so far.
    let mut open: Vec<(Id, Vec<Id>)> = Vec::new();
    let mut root = None;

    for event in Parser::new_from_str_with_options(text, options) {
        let (event, span) = event.map_err(|error| {
            let at = error.marker();
            let (line, column) = (first_line + at.line().max(1) - 1, at.col() + 1);
            match error.kind() {
                // The parser reads ahead, and may be there first.
                ErrorKind::RecursionLimitExceeded => Error::limit(line, column, too_deep(limits)),
                _ => Error::new(line, column, plain_message(&error.to_string())),
            }
        })?;
        let (kind, anchor) = match event {
            Event::DocumentEnd => break,
            Event::DocumentStart(_, Some(version)) if (version.major, version.minor) != (1, 1) => {
                let message = format!(
                    "document asks for YAML {}.{}; it is read as 1.1",
                    version.major, version.minor
                );
                return Err(Error::new(first_line + span.start.line().max(1) - 1, 1, message));
            }
            Event::Scalar(text, style, anchor, tag) => {
                let plain = style == ScalarStyle::Plain;
                (
                    Kind::Scalar {
                        text,
                        tag: full_tag(tag.as_deref()),
                        plain,
                    },
                    anchor,
                )
            }
            Event::SequenceStart(_, anchor, _) => (Kind::Sequence(Vec::new()), anchor),
            Event::MappingStart(_, anchor, _) => (Kind::Mapping(Vec::new()), anchor),
            Event::Alias(anchor) => {
                let target = anchors
                    .get(&anchor)
                    .copied()
                    .expect("the parser resolves aliases to anchors it gave");
                (Kind::Alias(target), 0)
            }
            Event::SequenceEnd | Event::MappingEnd => {
                let (id, children) = open.pop().expect("the parser balances starts and ends");
                match &mut nodes[id as usize].kind {
                    Kind::Sequence(items) | Kind::Mapping(items) => *items = children,
                    Kind::Scalar { .. } | Kind::Alias(_) => unreachable!("only collections are open"),
                }
                continue;
            }
            _ => continue,
        };
        let (line, column) = (first_line + span.start.line().max(1) - 1, span.start.col() + 1);
        if nodes.len() >= limits.nodes {
            return Err(Error::limit(
                line,
                column,
                format!("document has more than {} nodes", limits.nodes),
            ));
        }
        let id = nodes.len() as Id;
        match open.last_mut() {
            Some((_, siblings)) => siblings.push(id),
            None => root = Some(id),
        }
        if anchor != 0 {
            anchors.insert(anchor, id);
        }
        if matches!(kind, Kind::Sequence(_) | Kind::Mapping(_)) {
            open.push((id, Vec::new()));
            if open.len() > limits.depth {
                return Err(Error::limit(line, column, too_deep(limits)));
            }
        }
        nodes.push(Node {
            kind,
            line: line as u32,
            column: column as u32,
        });
    }
    Ok(Tree { nodes, root })
}

pub(super) fn too_deep(limits: &Limits) -> String {
    format!("document is nested deeper than {}", limits.depth)
}

fn full_tag(tag: Option<&Tag>) -> String {
    tag.map(|tag| format!("{}{}", tag.handle(), tag.suffix()))
        .unwrap_or_default()
}

/// The parser's message without the place it adds.
fn plain_message(message: &str) -> &str {
    message
        .split(" at byte ")
        .next()
        .and_then(|text| text.split(" at char ").next())
        .unwrap_or(message)
}
