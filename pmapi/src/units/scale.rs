//! Scales of each dimension, and the extra units of PCP 7.2.

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
    /// All scales, smallest first.
    pub const ALL: [SpaceScale; 9] = {
        use SpaceScale::*;
        [Byte, Kbyte, Mbyte, Gbyte, Tbyte, Pbyte, Ebyte, Zbyte, Ybyte]
    };

    /// Returns the scale with a code; `None` for the field's other seven codes, which have no meaning.
    pub fn from_code(code: u8) -> Option<SpaceScale> {
        Self::ALL.get(usize::from(code)).copied()
    }

    /// Returns the name that pmUnitsStr(3) uses.
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
    /// All scales, smallest first.
    pub const ALL: [TimeScale; 6] = {
        use TimeScale::*;
        [Nsec, Usec, Msec, Sec, Min, Hour]
    };

    /// Returns the scale with a code; `None` for the field's other ten codes, which have no meaning.
    pub fn from_code(code: u8) -> Option<TimeScale> {
        Self::ALL.get(usize::from(code)).copied()
    }

    /// Returns the name that pmUnitsStr(3) uses.
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

/// Quantity that an extra unit measures (`PM_UNIT_*`, since PCP 7.2). A metric has at most one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
#[repr(i8)]
#[non_exhaustive]
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
    /// All quantities, in the order of their codes.
    pub const ALL: [Quantity; 4] = [Quantity::Temperature, Quantity::Voltage, Quantity::Current, Quantity::Power];

    /// Returns the quantity with a code of either sign, where a negative code means a divisor.
    pub fn from_code(code: i8) -> Option<Quantity> {
        Self::ALL.into_iter().find(|q| *q as i8 == code || *q as i8 == code.wrapping_neg())
    }

    /// Returns the name that pmUnitsStr(3) uses.
    pub const fn name(self) -> &'static str {
        match self {
            Quantity::Temperature => "temperature",
            Quantity::Voltage => "voltage",
            Quantity::Current => "current",
            Quantity::Power => "power",
        }
    }
}

/// Extra unit with its scale (`PM_TEMPERATURE_*`, `PM_VOLTAGE_*`, `PM_CURRENT_*`, `PM_POWER_*`, since PCP 7.2).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
#[non_exhaustive]
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
    /// All extra units, in the order of their codes.
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

    /// Returns the quantity that the unit measures.
    pub const fn quantity(self) -> Quantity {
        self.parts().0
    }

    /// Returns the code of the scale, 1 to 7.
    pub const fn scale(self) -> u8 {
        self.parts().1
    }

    /// Returns the symbol that pmUnitsStr(3) puts between parentheses.
    pub const fn symbol(self) -> &'static str {
        self.parts().2
    }

    /// Returns the unit of a quantity with a code of its scale.
    pub fn from_codes(quantity: Quantity, scale: u8) -> Option<ExtraUnit> {
        Self::ALL.into_iter().find(|u| u.quantity() == quantity && u.scale() == scale)
    }
}
