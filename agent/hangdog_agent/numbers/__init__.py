"""Follows the losses and gradient norms that trainers log, and reports those that went wrong."""
