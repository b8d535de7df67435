"""The agent: one per machine; discovers training processes, captures them on demand, and never makes a hang worse."""
