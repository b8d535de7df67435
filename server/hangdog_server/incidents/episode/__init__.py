"""What makes one standstill one incident: further looks at it, and what it does once people are done with it."""
