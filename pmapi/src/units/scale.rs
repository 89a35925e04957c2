//! The scales of each dimension, and the extra units of PCP 7.2.

/// Scale of space (`PM_SPACE_*`): powers of 1024.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
#[repr(u8)]
pub enum SpaceScale {
    /// Bytes.
    Byte = 0,
    /// Kibibytes.
    Kbyte = 1,
    /// Mebibytes.
    Mbyte = 2,
    /// Gibibytes.
    Gbyte = 3,
    /// Tebibytes.
    Tbyte = 4,
    /// Pebibytes.
    Pbyte = 5,
    /// Exbibytes.
    Ebyte = 6,
    /// Zebibytes.
    Zbyte = 7,
    /// Yobibytes.
    Ybyte = 8,
}

impl SpaceScale {
    /// Every scale, smallest first.
    pub const ALL: [SpaceScale; 9] = {
        use SpaceScale::*;
        [Byte, Kbyte, Mbyte, Gbyte, Tbyte, Pbyte, Ebyte, Zbyte, Ybyte]
    };

    /// The scale of a code; the field's other seven codes have no meaning.
    pub fn from_code(code: u8) -> Option<SpaceScale> {
        Self::ALL.get(usize::from(code)).copied()
    }

    /// The name that pmUnitsStr(3) uses.
    pub const fn name(self) -> &'static str {
        match self {
            SpaceScale::Byte => "byte",
            SpaceScale::Kbyte => "Kbyte",
            SpaceScale::Mbyte => "Mbyte",
            SpaceScale::Gbyte => "Gbyte",
            SpaceScale::Tbyte => "Tbyte",
            SpaceScale::Pbyte => "Pbyte",
            SpaceScale::Ebyte => "Ebyte",
            SpaceScale::Zbyte => "Zbyte",
            SpaceScale::Ybyte => "Ybyte",
        }
    }
}

/// Scale of time (`PM_TIME_*`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
#[repr(u8)]
pub enum TimeScale {
    /// Nanoseconds.
    Nsec = 0,
    /// Microseconds.
    Usec = 1,
    /// Milliseconds.
    Msec = 2,
    /// Seconds.
    Sec = 3,
    /// Minutes.
    Min = 4,
    /// Hours.
    Hour = 5,
}

impl TimeScale {
    /// Every scale, smallest first.
    pub const ALL: [TimeScale; 6] = {
        use TimeScale::*;
        [Nsec, Usec, Msec, Sec, Min, Hour]
    };

    /// The scale of a code; the field's other ten codes have no meaning.
    pub fn from_code(code: u8) -> Option<TimeScale> {
        Self::ALL.get(usize::from(code)).copied()
    }

    /// The name that pmUnitsStr(3) uses.
    pub const fn name(self) -> &'static str {
        match self {
            TimeScale::Nsec => "nanosec",
            TimeScale::Usec => "microsec",
            TimeScale::Msec => "millisec",
            TimeScale::Sec => "sec",
            TimeScale::Min => "min",
            TimeScale::Hour => "hour",
        }
    }
}

/// What an extra unit measures (`PM_UNIT_*`, since PCP 7.2). A metric has one at the most.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
#[repr(i8)]
pub enum Quantity {
    /// Temperature.
    Temperature = 1,
    /// Voltage.
    Voltage = 2,
    /// Electric current.
    Current = 3,
    /// Power.
    Power = 4,
}

impl Quantity {
    /// Every quantity, in the order of the codes.
    pub const ALL: [Quantity; 4] = [Quantity::Temperature, Quantity::Voltage, Quantity::Current, Quantity::Power];

    /// The quantity of a code, whatever its sign: a negative code stands for a divisor.
    pub fn from_code(code: i8) -> Option<Quantity> {
        Self::ALL.into_iter().find(|q| *q as i8 == code || *q as i8 == code.wrapping_neg())
    }

    /// The name that pmUnitsStr(3) uses.
    pub const fn name(self) -> &'static str {
        match self {
            Quantity::Temperature => "temperature",
            Quantity::Voltage => "voltage",
            Quantity::Current => "current",
            Quantity::Power => "power",
        }
    }
}

/// An extra unit with its scale (`PM_TEMPERATURE_*`, `PM_VOLTAGE_*`, `PM_CURRENT_*`,
/// `PM_POWER_*`, since PCP 7.2).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub enum ExtraUnit {
    /// Degrees Celsius.
    Celsius,
    /// Degrees Fahrenheit.
    Fahrenheit,
    /// Kelvin.
    Kelvin,
    /// Volts.
    Volt,
    /// Millivolts.
    Millivolt,
    /// Microvolts.
    Microvolt,
    /// Amperes.
    Ampere,
    /// Milliamperes.
    Milliampere,
    /// Microamperes.
    Microampere,
    /// Kilowatts.
    Kilowatt,
    /// Watts.
    Watt,
    /// Milliwatts.
    Milliwatt,
    /// Microwatts.
    Microwatt,
}

impl ExtraUnit {
    /// Every extra unit, in the order of the codes.
    pub const ALL: [ExtraUnit; 13] = {
        use ExtraUnit::*;
        [
            Celsius,
            Fahrenheit,
            Kelvin,
            Volt,
            Millivolt,
            Microvolt,
            Ampere,
            Milliampere,
            Microampere,
            Kilowatt,
            Watt,
            Milliwatt,
            Microwatt,
        ]
    };

    const fn parts(self) -> (Quantity, u8, &'static str) {
        match self {
            ExtraUnit::Celsius => (Quantity::Temperature, 1, "C"),
            ExtraUnit::Fahrenheit => (Quantity::Temperature, 2, "F"),
            ExtraUnit::Kelvin => (Quantity::Temperature, 3, "K"),
            ExtraUnit::Volt => (Quantity::Voltage, 1, "V"),
            ExtraUnit::Millivolt => (Quantity::Voltage, 2, "mV"),
            ExtraUnit::Microvolt => (Quantity::Voltage, 3, "uV"),
            ExtraUnit::Ampere => (Quantity::Current, 1, "A"),
            ExtraUnit::Milliampere => (Quantity::Current, 2, "mA"),
            ExtraUnit::Microampere => (Quantity::Current, 3, "uA"),
            ExtraUnit::Kilowatt => (Quantity::Power, 1, "kW"),
            ExtraUnit::Watt => (Quantity::Power, 2, "W"),
            ExtraUnit::Milliwatt => (Quantity::Power, 3, "mW"),
            ExtraUnit::Microwatt => (Quantity::Power, 4, "uW"),
        }
    }

    /// What the unit measures.
    pub const fn quantity(self) -> Quantity {
        self.parts().0
    }

    /// The code of the scale, 1 to 7.
    pub const fn scale(self) -> u8 {
        self.parts().1
    }

    /// The symbol that pmUnitsStr(3) puts between parentheses.
    pub const fn symbol(self) -> &'static str {
        self.parts().2
    }

    /// The unit of a quantity and a scale's code.
    pub fn from_codes(quantity: Quantity, scale: u8) -> Option<ExtraUnit> {
        Self::ALL.into_iter().find(|u| u.quantity() == quantity && u.scale() == scale)
    }
}
