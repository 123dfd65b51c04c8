//! What a node of a Cluster says of all nodes.

use crate::server::RedisServer;

/// What one node says.
#[derive(Debug)]
pub(super) struct View {
    /// `CLUSTER INFO`.
    info: String,
    /// `CLUSTER NODES`.
    nodes: Vec<Known>,
}

/// A node, as one knows it.
#[derive(Clone, Debug)]
pub(super) struct Known {
    pub(super) id: String,
    pub(super) port: u16,
    flags: String,
    /// Whom it follows; `-` if nobody.
    follows: String,
    pub(super) epoch: u64,
    connected: bool,
    /// From the first to the last.
    pub(super) slots: Vec<(u16, u16)>,
}

/// Who, following whom, since when, with which slots.
pub(super) type Role<'a> = (&'a str, &'a str, u64, &'a [(u16, u16)]);

impl Known {
    /// Reads a line such as `id ip:port@bus flags primary ping pong epoch link slots…`.
    fn parse(line: &str) -> Option<Self> {
        let mut fields = line.split(' ');
        let mut next = || fields.next();
        let (id, address, flags) = (next()?, next()?, next()?);
        let (follows, _ping, _pong) = (next()?, next()?, next()?);
        let (epoch, link) = (next()?, next()?);
        let (address, _bus) = address.split_once('@')?;
        let slots = fields.filter_map(|range| {
            // In brackets are those on their way.
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            Some((first.parse().ok()?, last.parse().ok()?))
        });
        Some(Self {
            id: id.to_owned(),
            port: address.rsplit_once(':')?.1.parse().ok()?,
            flags: flags.to_owned(),
            follows: follows.to_owned(),
            epoch: epoch.parse().ok()?,
            connected: link == "connected",
            slots: slots.collect(),
        })
    }

    fn is(&self, flag: &str) -> bool {
        self.flags.split(',').any(|it| it == flag)
    }

    pub(super) fn is_primary(&self) -> bool {
        self.is("master")
    }

    fn has(&self, slot: u16) -> bool {
        let mut slots = self.slots.iter();
        slots.any(|(first, last)| (*first..=*last).contains(&slot))
    }
}

impl View {
    pub(super) fn of_node(node: &RedisServer) -> Result<Self, String> {
        let nodes: String = node.ask(&["CLUSTER", "NODES"])?;
        let info = node.ask(&["CLUSTER", "INFO"])?;
        let nodes = nodes.lines().filter_map(Known::parse).collect();
        Ok(Self { info, nodes })
    }

    pub(super) fn of(&self, id: &str) -> Option<&Known> {
        self.nodes.iter().find(|known| known.id == id)
    }

    pub(super) fn owner_of(&self, slot: u16) -> Option<&Known> {
        self.nodes.iter().find(|known| known.has(slot))
    }

    /// The nodes that have slots.
    pub(super) fn primaries(&self) -> impl Iterator<Item = &Known> {
        let nodes = self.nodes.iter();
        nodes.filter(|known| known.is_primary() && !known.slots.is_empty())
    }

    /// The node that says this, if the slot is its own.
    pub(super) fn is_owner_of(&self, slot: u16) -> Option<&Known> {
        self.owner_of(slot).filter(|known| known.is("myself"))
    }

    /// What nodes have to agree on before something is changed. One that has just become a replica
    /// is given no votes by those that do not know; and a primary that does not know the latest
    /// epoch takes a slot without a new one, and loses it to the former owner's last message.
    pub(super) fn roles(&self) -> Vec<Role<'_>> {
        let nodes = self.nodes.iter();
        let roles = nodes.map(|it| (&it.id[..], &it.follows[..], it.epoch, &it.slots[..]));
        let mut roles: Vec<_> = roles.collect();
        roles.sort_unstable();
        roles
    }

    /// Whether it serves.
    pub(super) fn ok(&self) -> Result<(), String> {
        let has = |line: &str| self.info.lines().any(|it| it.trim() == line);
        let serves = has("cluster_state:ok") && has("cluster_slots_ok:16384");
        serves.then_some(()).ok_or_else(|| self.info.clone())
    }

    /// Whether it is in touch with all of these, and with nobody else.
    pub(super) fn knows(&self, ids: &[String]) -> bool {
        let in_touch = |id: &String| {
            let known = self.of(id);
            known.is_some_and(|known| known.connected && !known.is("handshake"))
        };
        self.nodes.len() == ids.len() && ids.iter().all(in_touch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_in_all_their_forms() {
        let line = "07c3 127.0.0.1:30004@31004,host slave,fail e7d1 0 1426238317239 4 disconnected";
        let known = Known::parse(line).unwrap();
        assert_eq!((known.port, known.epoch), (30004, 4));
        assert!(!known.connected);
        assert!(!known.is_primary() && known.is("fail") && known.slots.is_empty());

        let line =
            "e7d1 127.0.0.1:30001@31001 myself,master - 0 0 1 connected 0-5460 7000 [93-<-07c3]";
        let known = Known::parse(line).unwrap();
        assert_eq!(known.slots, [(0, 5460), (7000, 7000)]);
        assert!(known.is_primary() && known.has(5460) && known.has(7000) && !known.has(5461));
        assert!(Known::parse("").is_none());
    }
}
