"""What the commands share: options, text and tables, usage errors, interrupts."""
