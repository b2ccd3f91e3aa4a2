//! Questions to the management port of the user's router.

use super::ExternalDut;
use crate::management::{Asking, ManagementPort, Operator};
use crate::{LabError, Management};
use drophammer_model::management::Question;
use std::time::Duration;

impl Management for ExternalDut {
    fn ask(&mut self, questions: &[Question], interval: Duration) -> Result<Vec<Asking>, LabError> {
        let Some(ManagementPort { address, community }) = &self.management else { return Ok(Vec::new()) };
        let (netns, cpu) = (self.shared.host_netns()?, self.shared.cpus.for_questions());
        let operator = Operator { netns, cpu, over: format!("management port {address}") };
        let possible = |question: &&Question| match question {
            Question::Ping => true,
            Question::Ssh => self.ssh,
            Question::Snmp => community.is_some(),
        };
        let community = community.as_deref().unwrap_or_default();
        let asked = questions.iter().filter(possible);
        asked.map(|question| operator.ask(*question, *address, community, interval)).collect()
    }

    fn has_ssh(&self) -> bool {
        self.ssh
    }
}
