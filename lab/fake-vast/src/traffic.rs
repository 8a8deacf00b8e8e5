//! Charges for traffic, by the GB, in both directions and in any state.

use crate::market::Market;
use crate::money::{Money, of_traffic};
use crate::time::ms;

impl Market {
    /// Records received and sent bytes of an instance.
    pub fn transfer(&mut self, now_s: f64, instance: u64, received: u64, sent: u64) {
        self.move_to(now_s);
        self.charge_bytes(instance, received, sent);
    }

    /// Charges for the whole image when its download starts, before the first start.
    pub(crate) fn move_image(&mut self, instance: u64) {
        if self.instances.get(&instance).is_some_and(|one| one.starts == 0) {
            let bytes = ms(self.settings.image_gb) * 1_000_000;
            self.charge_bytes(instance, bytes, 0);
        }
    }

    fn charge_bytes(&mut self, instance: u64, received: u64, sent: u64) {
        let Some(one) = self.instances.get_mut(&instance) else { return };
        let machine = &self.machines[one.machine];
        let (bwd, bwu) = (of_traffic(machine.down, received), of_traffic(machine.up, sent));
        one.account.settle(self.now_ms);
        one.account.move_bytes(self.now_ms, bwd, bwu);
        let sum: Money = bwd + bwu;
        self.balance.spend(sum);
    }
}
