//! A reader over packed bytes.

use leasehold_core::{Capacity, ClaimId, ClientInfo, Inbox, Mode, StoreTime};

/// Up to here a double counts one by one.
const MAX_NUMBER: f64 = 9_007_199_254_740_992.0;

/// A reader over bytes: `None` where they end too early.
pub(crate) struct Bytes<'a>(pub(crate) &'a [u8]);

impl<'a> Bytes<'a> {
    pub(super) fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.take(1).map(|bytes| bytes[0])
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        Some(u16::from_le_bytes(self.take(2)?.try_into().ok()?))
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    pub(super) fn double(&mut self) -> Option<f64> {
        Some(f64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    pub(crate) fn number(&mut self) -> Option<u64> {
        let number = self.double()?;
        let whole = number.fract() == 0.0 && (0.0..=MAX_NUMBER).contains(&number);
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "just looked at"
        )]
        whole.then_some(number as u64)
    }

    pub(crate) fn time(&mut self) -> Option<StoreTime> {
        self.number().map(StoreTime)
    }

    /// A capacity in use.
    pub(crate) fn capacity(&mut self) -> Option<Capacity> {
        let ahead = self.0;
        if self.double()? < 0.0 {
            return Some(Capacity::Lock);
        }
        self.0 = ahead;
        Some(Capacity::Permits(u32::try_from(self.number()?).ok()?))
    }

    pub(crate) fn text(&mut self) -> Option<&'a str> {
        let size = self.u8()?;
        std::str::from_utf8(self.take(size.into())?).ok()
    }

    pub(crate) fn long(&mut self) -> Option<&'a [u8]> {
        let size = self.u16()?;
        self.take(size.into())
    }

    /// An inbox, or none.
    pub(crate) fn inbox(&mut self) -> Option<Option<Inbox>> {
        match self.text()? {
            "" => Some(None),
            name => Inbox::new(name).ok().map(Some),
        }
    }

    /// Who claims: the inbox, and the owner.
    pub(super) fn client(&mut self) -> Option<(Option<Inbox>, ClientInfo)> {
        let (inbox, pid) = (self.inbox()?, self.u32()?);
        let (host, label) = (self.text()?, self.text()?);
        Some((inbox, ClientInfo::of_texts(host, pid, label)))
    }

    /// The start of the body of a claim: the traits, the mode and the client. See `record.rs`.
    pub(super) fn body(&mut self) -> Option<(u8, Mode, Option<Inbox>, ClientInfo)> {
        let (traits, of, weight) = (self.u8()?, self.u32()?, self.u32()?);
        let capacity = match of {
            0 => Capacity::Lock,
            of => Capacity::Permits(of),
        };
        let (inbox, owner) = self.client()?;
        Some((traits, Mode::new(capacity, weight.into()), inbox, owner))
    }

    pub(super) fn id(&mut self) -> Option<ClaimId> {
        ClaimId::new(self.text()?).ok()
    }
}
