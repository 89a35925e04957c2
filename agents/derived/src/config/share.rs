//! Definitions that refer to definitions of other groups.

use std::collections::HashMap;

use super::{Config, Problem};

impl Config {
    /// Copies the definitions of other groups with the same operands that the definitions of a group refer to. The
    /// copies are computed from the samples of the group that uses them, and are not shown.
    pub(super) fn share(&mut self) {
        // Group and name of each definition, by the name that it is shown by, and by its own name.
        let mut homes: HashMap<String, (usize, String)> = HashMap::new();
        for (number, group) in self.groups.iter().enumerate() {
            for name in group.definitions.iter().map(|definition| definition.name()) {
                homes.entry(name.to_owned()).or_insert_with(|| (number, name.to_owned()));
            }
        }
        for (number, group) in self.groups.iter().enumerate() {
            for name in group.definitions.iter().map(|definition| definition.name()) {
                homes.insert(group.name_of(name), (number, name.to_owned()));
            }
        }
        for number in 0..self.groups.len() {
            let mut at = 0;
            // Copies are added at the end, and may refer to other definitions in turn.
            while let Some(definition) = self.groups[number].definitions.iter().nth(at) {
                let user = definition.name().to_owned();
                let names: Vec<String> = definition.names().map(str::to_owned).collect();
                for name in names {
                    let home = homes.get(&name).filter(|(home, _)| *home != number);
                    let Some((home, definition)) = home else { continue };
                    let outcome = self.take(number, *home, definition);
                    // A plain name may belong to another agent.
                    let is_ours = name == self.groups[*home].name_of(definition);
                    if let (Err(why), true, Some(place)) = (outcome, is_ours, self.groups[number].place(&user)) {
                        let text = format!("Error: {name} belongs to group {:?}, {why}", self.groups[*home].name);
                        self.problems.push(Problem { place: place.clone(), definition: Some(user.clone()), text });
                    }
                }
                at += 1;
            }
        }
    }

    /// Copies a definition from one group into another, under the name that clients see.
    fn take(&mut self, user: usize, home: usize, name: &str) -> Result<(), &'static str> {
        let Some((low, high)) = self.groups.split_at_mut_checked(user.max(home)) else { return Ok(()) };
        let (Some(low), Some(high)) = (low.get_mut(user.min(home)), high.first_mut()) else { return Ok(()) };
        let (user, home) = if user < home { (low, high) } else { (high, low) };
        let (Some(definition), shown) = (home.definitions.get(name), home.name_of(name)) else { return Ok(()) };
        if user.definitions.get(name).is_some() || user.taken.contains(&shown) {
            return Ok(());
        }
        if user.operands != home.operands {
            return Err("whose operands come from another source");
        }
        if definition.names().any(|name| user.definitions.get(name).is_some() && home.definitions.get(name).is_some()) {
            return Err("and refers to a name that is defined differently in this group");
        }
        let taken = user
            .definitions
            .register(&shown, definition.expression())
            .map_err(|_| "and this group cannot have another definition")?;
        taken.set_alias(name);
        user.places.extend(home.places.get(name).map(|place| (shown.clone(), place.clone())));
        user.taken.insert(shown);
        Ok(())
    }
}
