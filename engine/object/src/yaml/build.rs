//! The tree as a JSON value: scalars typed, aliases expanded, merges done, keys made strings.

use super::resolve::{Scalar, resolve};
use super::tree::{Id, Kind, Tree, too_deep};
use super::{Error, Limits, number};
use crate::{Map, Value};

/// So many repeated keys of a document are told.
const REPEATED_MAX: usize = 20;

/// The value of a tree, null for a text without a document; and the keys that stand twice in one map.
pub(super) fn value(tree: &Tree<'_>, limits: &Limits) -> Result<(Value, Vec<Error>), Error> {
    let Some(root) = tree.root else {
        return Ok((Value::Null, Vec::new()));
    };
    let mut builder = Builder {
        tree,
        limits,
        aliases: Vec::new(),
        alias_nodes: 0,
        alias_bytes: 0,
        repeated: Vec::new(),
    };
    let value = builder.value(root, 0)?;
    Ok((value, builder.repeated))
}

struct Builder<'t> {
    tree: &'t Tree<'t>,
    limits: &'t Limits,
    /// Aliases that are being expanded, outermost first.
    aliases: Vec<Id>,
    /// Nodes and bytes of strings that came from aliases so far.
    alias_nodes: usize,
    alias_bytes: usize,
    repeated: Vec<Error>,
}

impl Builder<'_> {
    fn value(&mut self, id: Id, depth: usize) -> Result<Value, Error> {
        self.charge(id, depth)?;
        match self.tree.kind(id) {
            Kind::Alias(target) => self.through_alias(id, |builder| builder.value(*target, depth)),
            Kind::Scalar { text, tag, plain } => {
                let typed = resolve(text, tag, *plain).map_err(|message| self.tree.error(id, message))?;
                Ok(match typed {
                    Scalar::Null => Value::Null,
                    Scalar::Bool(truth) => Value::Bool(truth),
                    Scalar::Int(number) => number.into(),
                    Scalar::Uint(number) => number.into(),
                    Scalar::Float(number) => number::from_f64(number)
                        .ok_or_else(|| self.tree.error(id, format!("{text} has no place in JSON")))?,
                    Scalar::Text => Value::String(text.clone().into_owned()),
                    Scalar::Decoded(text) => Value::String(text),
                })
            }
            Kind::Sequence(items) => items
                .iter()
                .map(|item| self.value(*item, depth + 1))
                .collect::<Result<_, _>>()
                .map(Value::Array),
            Kind::Mapping(_) => {
                let mut map = Map::new();
                self.fill(id, &mut map, depth)?;
                Ok(Value::Object(map))
            }
        }
    }

    /// Puts the entries of a mapping into `map`, over what is there.
    fn fill(&mut self, id: Id, map: &mut Map, depth: usize) -> Result<(), Error> {
        let Kind::Mapping(entries) = self.tree.kind(id) else {
            unreachable!("the caller saw a mapping")
        };
        for (place, entry) in entries.chunks_exact(2).enumerate() {
            let (key_id, value) = (entry[0], entry[1]);
            if self.is_merge(key_id) {
                self.merge(value, map, depth)?;
                continue;
            }
            let key = self.key(key_id, depth)?;
            let value = self.value(value, depth + 1)?;
            if map.insert(key, value).is_some() {
                self.note_repeated(key_id, &entries[..2 * place]);
            }
        }
        Ok(())
    }

    /// Tells that a key stands here for the second time, if it was this map that had it before and not one merged into it.
    fn note_repeated(&mut self, key: Id, before: &[Id]) {
        if self.repeated.len() >= REPEATED_MAX || !self.aliases.is_empty() {
            return;
        }
        let text = |id: Id| match self.tree.kind(id) {
            Kind::Scalar { text, .. } => Some(text),
            _ => None,
        };
        let Some(name) = text(key) else { return };
        if before.iter().step_by(2).any(|id| text(*id) == Some(name)) {
            let message = format!("the key {name:?} stands here for the second time; the last one counts");
            let error = self.tree.error(key, message);
            self.repeated.push(error);
        }
    }

    fn is_merge(&self, key: Id) -> bool {
        matches!(self.tree.kind(key), Kind::Scalar { text, tag, plain }
            if text == "<<" && ((*plain && tag.is_empty()) || tag == "!" || tag == "tag:yaml.org,2002:merge"))
    }

    /// What stands beside `<<`: a mapping, or a list of mappings of which the earlier win.
    fn merge(&mut self, source: Id, map: &mut Map, depth: usize) -> Result<(), Error> {
        self.charge(source, depth)?;
        match self.tree.kind(source) {
            Kind::Mapping(_) => self.fill(source, map, depth),
            Kind::Alias(target) if matches!(self.tree.kind(*target), Kind::Mapping(_)) => {
                self.through_alias(source, |builder| builder.fill(*target, map, depth))
            }
            Kind::Sequence(items) => {
                for item in items.iter().rev() {
                    match self.tree.kind(*item) {
                        Kind::Mapping(_) | Kind::Alias(_) => self.merge(*item, map, depth + 1)?,
                        _ => return Err(self.not_mergeable(*item)),
                    }
                }
                Ok(())
            }
            _ => Err(self.not_mergeable(source)),
        }
    }

    fn not_mergeable(&self, id: Id) -> Error {
        self.tree
            .error(id, "only a map or a list of maps can be merged with <<")
    }

    /// The string that a key becomes in JSON.
    fn key(&mut self, id: Id, depth: usize) -> Result<String, Error> {
        self.charge(id, depth)?;
        let refuse = |what: &str| Err(self.tree.error(id, format!("{what} cannot be a key")));
        match self.tree.kind(id) {
            Kind::Alias(target) => self.through_alias(id, |builder| builder.key(*target, depth)),
            Kind::Sequence(_) => refuse("a list"),
            Kind::Mapping(_) => refuse("a map"),
            Kind::Scalar { text, tag, plain } => {
                match resolve(text, tag, *plain).map_err(|message| self.tree.error(id, message))? {
                    Scalar::Null => refuse("null"),
                    Scalar::Uint(_) => refuse("an integer above 9223372036854775807"),
                    Scalar::Bool(truth) => Ok(truth.to_string()),
                    Scalar::Int(number) => Ok(number.to_string()),
                    Scalar::Float(number) => Ok(number::shortest_f32(number)),
                    Scalar::Text => Ok(text.clone().into_owned()),
                    Scalar::Decoded(text) => Ok(text),
                }
            }
        }
    }

    fn through_alias<T>(
        &mut self,
        alias: Id,
        expand: impl FnOnce(&mut Self) -> Result<T, Error>,
    ) -> Result<T, Error> {
        if self.aliases.contains(&alias) {
            return Err(self
                .tree
                .error(alias, "what the alias stands for contains itself"));
        }
        self.aliases.push(alias);
        let expanded = expand(self);
        self.aliases.pop();
        expanded
    }

    /// Keeps the budgets: depth everywhere, nodes and bytes below aliases.
    fn charge(&mut self, id: Id, depth: usize) -> Result<(), Error> {
        if depth > self.limits.depth {
            return Err(self.tree.limit(id, too_deep(self.limits)));
        }
        if self.aliases.is_empty() {
            return Ok(());
        }
        self.alias_nodes += 1;
        if let Kind::Scalar { text, .. } = self.tree.kind(id) {
            self.alias_bytes += text.len();
        }
        if self.alias_nodes > self.limits.alias_nodes || self.alias_bytes > self.limits.bytes {
            return Err(self.tree.limit(id, "aliases make the document too large"));
        }
        Ok(())
    }
}
