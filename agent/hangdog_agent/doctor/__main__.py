"""`python -m hangdog_agent.doctor` is `hangdog doctor` for images that hold the agent only."""

from hangdog_agent.doctor.doctor import main

if __name__ == "__main__":
    main()
