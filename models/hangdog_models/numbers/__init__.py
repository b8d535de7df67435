"""What a job logs of its own arithmetic, the loss and the norm of its gradients, and when that is wrong."""
